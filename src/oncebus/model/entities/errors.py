"""Errors about entities. Protocols translate the kind and the sub code.

The texts are those of the service where they are known, and follow its style elsewhere: properties have their names in
the Atom feed, durations are .NET time spans, and the parameter name comes on a line of its own.
"""

from __future__ import annotations

from oncebus.values.errors import ErrorKind, OncebusError


class EntityError(OncebusError):
    """A request about an entity, or a message to it, is refused. `sub_code` is the SubCode of the service.

    `parameter` and `actual` are the name and the value of the property, as the service writes them below its text.
    `summary` is the message in one line without the name, for a form whose label names the field.
    """

    def __init__(
        self, text: str, sub_code: int, *, field: str | None = None, parameter: str = "", actual: str = ""
    ) -> None:
        named = f"\nParameter name: {parameter}" if parameter else ""
        valued = f"Actual value was {actual}." if actual else ""
        super().__init__(f"{text}{named}\n{valued}" if valued else f"{text}{named}")
        self.summary = f"{text} {valued}" if valued else text
        self.sub_code = sub_code
        self.field = field

    @property
    def detail(self) -> str:
        """Return the message with the sub code, as the service writes it in the body of a response."""
        return f"SubCode={self.sub_code}. {self}"


class BadRequest(EntityError, ValueError):
    """A description, a change or a message breaks a rule."""

    kind = ErrorKind.BAD_REQUEST

    def __init__(
        self, text: str, sub_code: int = 40000, *, field: str | None = None, parameter: str = "", actual: str = ""
    ) -> None:
        super().__init__(text, sub_code, field=field, parameter=parameter, actual=actual)


class OutOfRange(BadRequest):
    """A value is outside the allowed range."""

    kind = ErrorKind.OUT_OF_RANGE


class InvalidOperation(BadRequest):
    """The entity does not support the operation: a message without a session, or a receiver of the wrong kind."""

    kind = ErrorKind.NOT_ALLOWED


class AlreadyExists(EntityError):
    """The name is taken.

    The sub code is not 40901, which clients read as "another operation is in progress" and retry.
    """

    kind = ErrorKind.EXISTS

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' already exists.", 40900, field="name")


def not_found(address: str) -> str:
    """Return the text for an entity that does not exist. AMQP clients read it, and get the whole address in it."""
    return f"The messaging entity '{address}' could not be found."


class NotFound(EntityError):
    """There is no entity of the requested kind at the path."""

    kind = ErrorKind.NOT_FOUND

    def __init__(self, path: str) -> None:
        super().__init__(not_found(path), 40400)
        self.path = path


class EntityDisabled(EntityError):
    """The entity's status does not allow the operation."""

    kind = ErrorKind.DISABLED

    def __init__(self, path: str) -> None:
        super().__init__(f"Messaging entity '{path}' is currently disabled.", 40300)


class QuotaExceeded(EntityError):
    """A limit on the number or size of things is reached."""

    kind = ErrorKind.QUOTA

    def __init__(self, text: str) -> None:
        super().__init__(text, 40300)
