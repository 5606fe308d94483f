"""Why the namespace refuses something about an entity. Protocols translate the class, the kind and the sub code.

The texts are the service's own where they are known, and keep to its form elsewhere: properties have the names of the
Atom feed, lengths of time are .NET time spans, and what belongs to a parameter comes on lines of its own.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from oncebus.errors import OncebusError


class ErrorKind(enum.StrEnum):
    """What sort of error it is: a protocol derives its status from it."""

    BAD_REQUEST = "bad-request"
    CONFLICT = "conflict"
    NOT_FOUND = "not-found"
    FORBIDDEN = "forbidden"
    QUOTA = "quota"


class EntityError(OncebusError):
    """A request about an entity, or a message to it, is refused. `sub_code` is what the service writes as SubCode."""

    kind: ClassVar[ErrorKind]
    sub_code: int

    def __init__(self, text: str, sub_code: int) -> None:
        super().__init__(text)
        self.sub_code = sub_code

    @property
    def text(self) -> str:
        """What is wrong, without the sub code."""
        return str(self)

    @property
    def detail(self) -> str:
        """The text as the service puts it into the body of an answer."""
        return f"SubCode={self.sub_code}. {self}"


class BadRequest(EntityError, ValueError):
    """A description, a change or a message breaks a rule."""

    kind = ErrorKind.BAD_REQUEST

    def __init__(self, text: str, sub_code: int = 40000) -> None:
        super().__init__(text, sub_code)


class OutOfRange(BadRequest):
    """A value lies outside of what is allowed."""


class InvalidOperation(BadRequest):
    """The entity is not made for this: a message without a session, a receiver of the wrong sort."""


class AlreadyExists(EntityError):
    """The name is taken.

    The sub code is not 40901: by that one clients know "another operation is in progress", and try again.
    """

    kind = ErrorKind.CONFLICT

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' already exists.", 40900)


class NotFound(EntityError):
    """There is no such entity, or none of that sort."""

    kind = ErrorKind.NOT_FOUND

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' could not be found.", 40400)


class EntityDisabled(EntityError):
    """The entity's status does not allow it."""

    kind = ErrorKind.FORBIDDEN

    def __init__(self, path: str) -> None:
        super().__init__(f"Messaging entity '{path}' is currently disabled.", 40300)


class QuotaExceeded(EntityError):
    """There are as many as there may be."""

    kind = ErrorKind.QUOTA

    def __init__(self, text: str) -> None:
        super().__init__(text, 40300)
