"""Parses an untrusted XML document into a small tree. Rejects document types, and so entity declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from oncebus.model.entities import BadRequest
from oncebus.values.errors import clip

INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
MOST_ELEMENTS = 20_000
"""The maximum number of elements and attributes."""
MOST_DEPTH = 20
LONGEST_NAME = 1024
"""The maximum length of a name, including its namespace: each element has its own copy of that."""

_SEPARATOR = " "


@dataclass(slots=True)
class Element:
    """An element. `text` excludes the text of its children. The keys of `attributes` are (namespace, name)."""

    namespace: str
    name: str
    attributes: dict[tuple[str, str], str]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    @property
    def type(self) -> str | None:
        """Return the type that `xsi:type` names, without its prefix."""
        given = self.attributes.get((INSTANCE, "type"))
        return None if given is None else given.rpartition(":")[2].strip()

    @property
    def is_nil(self) -> bool:
        """Return whether `xsi:nil` marks the element as null."""
        return self.attributes.get((INSTANCE, "nil"), "").strip() in ("true", "1")

    def child(self, name: str) -> Element | None:
        """Return the child called `name`; None if there is none, or if it is nil."""
        return self.members().get(name)

    def members(self) -> dict[str, Element]:
        """Return the children that are not nil, by name. Raises `BadRequest` if a name occurs twice."""
        found: dict[str, Element] = {}
        for node in self.children:
            if node.name in found:
                raise BadRequest(f"The element {clip(node.name)} occurs more than once.")
            if not node.is_nil:
                found[node.name] = node
        return found

    def __iter__(self) -> Iterator[Element]:
        return iter(self.children)


def read_document(body: bytes) -> Element:
    """Return the root of a document. Raises `BadRequest`."""
    reader = _Reader()
    try:
        reader.parser.Parse(body, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "unknown error")
        raise BadRequest(
            f"The body of the request is not XML: {reason}, line {error.lineno}, column {error.offset + 1}."
        ) from None
    except (LookupError, ValueError) as error:
        if isinstance(error, BadRequest):
            raise
        # The document names an unknown encoding.
        raise BadRequest(f"The body of the request is not XML: {error}.") from None
    return reader.root


class _Reader:
    root: Element

    def __init__(self) -> None:
        self.parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self.parser.buffer_text = True
        self.parser.ordered_attributes = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._document_type
        self.parser.EntityDeclHandler = self._document_type
        self.parser.ProcessingInstructionHandler = self._instruction
        self._open: list[Element] = []
        self._pieces: list[list[str]] = []
        self._count = 0

    def _start(self, name: str, attributes: list[str]) -> None:
        self._count += 1 + len(attributes) // 2
        if self._count > MOST_ELEMENTS:
            raise BadRequest(f"The body of the request has more than {MOST_ELEMENTS} elements and attributes.")
        if any(len(each) > LONGEST_NAME for each in (name, *attributes[::2])):
            raise BadRequest(f"A name in the body of the request has more than {LONGEST_NAME} characters.")
        if len(self._open) >= MOST_DEPTH:
            raise BadRequest(f"The elements of the request's body are nested more than {MOST_DEPTH} deep.")
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        node = Element(*_split(name), {_split(key): value for key, value in pairs})
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)
        self._pieces.append([])

    def _end(self, _: str) -> None:
        self._open.pop().text = "".join(self._pieces.pop())

    def _text(self, text: str) -> None:
        self._pieces[-1].append(text)

    def _document_type(self, *_: object) -> NoReturn:
        raise BadRequest("The body of the request has a document type, which is not allowed.")

    def _instruction(self, target: str, _: str) -> NoReturn:
        raise BadRequest(
            f"The body of the request has the processing instruction {clip(target)}, which is not allowed."
        )


def _split(name: str) -> tuple[str, str]:
    namespace, _, local = name.rpartition(_SEPARATOR)
    return namespace, local
