"""Reads the resources of a template into a flat list.

Loops are unrolled, nested resources get their full names, and each resource comes after its dependencies.

    {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "[concat(parameters('namespace'), '/orders')]", …}
    {"type": "queues", "name": "orders", …}                                       the same, nested in its namespace
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oncebus.protocols.management.documents import Object, find, is_object, kind_of, written_name
from oncebus.protocols.management.problems import AlreadyReported, Problems, item, member
from oncebus.protocols.templates.evaluation import Evaluator, is_whole
from oncebus.protocols.templates.scope import Deployment, Value

MOST = 800
"""The maximum number of resources in a template, including all copies. It is the Resource Manager's limit."""

_READ_APART = ("resources", "copy", "dependson", "condition", "name", "type")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource with all expressions evaluated.

    `names` has one name for each part of the type; a name that could not be evaluated is empty. `handles` are the
    texts, in lower case, by which `dependsOn` of other resources may refer to it.
    """

    path: str
    type: str
    names: tuple[str, ...]
    members: Object
    is_deployed: bool = True
    handles: frozenset[str] = frozenset()
    depends: tuple[tuple[str, str], ...] = ()

    @property
    def is_named(self) -> bool:
        """Return whether all its names could be evaluated."""
        return all(self.names)

    @property
    def provider(self) -> str:
        """Return its provider, like microsoft.servicebus."""
        return self.type.partition("/")[0].lower()

    @property
    def kind(self) -> str:
        """Return its type within the provider, like namespaces/queues."""
        return self.type.partition("/")[2].lower()


@dataclass(frozen=True, slots=True)
class _Around:
    """The resource around nested resources.

    `type` is empty for the template itself, and if it could not be evaluated.
    """

    type: str = ""
    names: tuple[str, ...] = ()
    handles: frozenset[str] = frozenset()
    is_lost: bool = False


class Resources:
    """Reads the resources of a template. It records each problem, and leaves out resources without a type or name."""

    def __init__(self, evaluator: Evaluator, deployment: Deployment, problems: Problems) -> None:
        self._evaluator = evaluator
        self._deployment = deployment
        self._problems = problems
        self._count = 0
        self.is_complete = True
        """Whether all types and names could be evaluated."""

    def read(self, written: Value) -> list[Resource]:
        """Return all resources, each after its dependencies."""
        found = list(self._all(written, "resources", _Around()))
        return self._sort(found)

    def _all(self, written: Value, path: str, owner: _Around) -> Iterator[Resource]:
        if is_object(written):
            # Newer templates have an object of resources by symbolic name.
            for symbol, each in written.items():
                yield from self._unroll(each, member(path, symbol), owner, symbol)
        elif isinstance(written, list):
            for at, each in enumerate(written):
                yield from self._unroll(each, item(path, at), owner, None)
        else:
            self._problems.add(path, f"The resources are {kind_of(written)}. Not an array or an object.")

    def _unroll(self, written: Value, path: str, owner: _Around, symbol: str | None) -> Iterator[Resource]:
        if not is_object(written):
            self._problems.add(path, f"A resource must be an object, not {kind_of(written)}.")
            return
        handles = [] if symbol is None else [symbol]
        loop = find(written, "copy")
        if loop is None:
            yield from self._one(written, path, owner, handles)
        elif not is_object(loop):
            self._problems.add(member(path, "copy"), f"The loop of a resource must be an object, not {kind_of(loop)}.")
        else:
            try:
                for index in self._evaluator.copies(loop, member(path, "copy")):
                    numbered = [f"{symbol}[{index}]" for symbol in handles]
                    yield from self._one(written, path, owner, [*handles, *numbered, str(find(loop, "name"))])
            except AlreadyReported:
                # The number of copies is unknown. One copy is read, so that its problems are found too.
                self.is_complete = False
                with self._evaluator.loops.at(str(find(loop, "name")), 0):
                    yield from self._one(written, path, owner, handles)

    def _one(self, written: Object, path: str, owner: _Around, handles: list[str]) -> Iterator[Resource]:
        self._count += 1
        if self._count > MOST:
            self._problems.add("resources", f"There are more than {MOST} resources, including all copies.")
            return
        inner = _Around(is_lost=True)
        try:
            resource = self._build(written, path, owner, handles)
            inner = _Around(resource.type, resource.names, resource.handles)
            yield resource
        except AlreadyReported:
            # The nested resources are still read, as far as that is possible without their owner.
            self.is_complete = False
        nested = written_name(written, "resources")
        if nested is not None:
            yield from self._all(written[nested], member(path, nested), inner)

    def _build(self, written: Object, path: str, owner: _Around, handles: list[str]) -> Resource:
        is_deployed = self._is_deployed(written, path)
        members = {
            name: self._evaluator.value(value, member(path, name))
            for name, value in written.items()
            if is_deployed and name.lower() not in _READ_APART
        }
        depends = tuple(self._dependencies(written, path, owner))
        kind, names = self._identity(written, path, owner)
        return Resource(
            path,
            kind,
            names,
            members,
            is_deployed and find(members, "existing") is not True,
            self._handles(kind, names, handles),
            depends,
        )

    def _identity(self, written: Object, path: str, owner: _Around) -> tuple[str, tuple[str, ...]]:
        kind, name = self._text(written, path, "type"), self._text(written, path, "name")
        if owner.is_lost or kind is None:
            raise AlreadyReported
        kind = kind.strip("/")
        if name is None:
            # The resource goes on with empty names, so that its properties are still checked.
            self.is_complete = False
            full = f"{owner.type}/{kind}" if owner.type and "/" not in kind else kind
            return full, ("",) * full.count("/")
        place = member(path, written_name(written, "name") or "")
        if owner.type and kind.lower().startswith("providers/"):
            # An extension resource: it is attached to its owner, but belongs to another provider.
            provider, _, rest = name.partition("/")
            return f"{provider}/{kind.partition('/')[2]}", (rest,)
        if owner.type and "/" not in kind:
            if "/" in name:
                self._problems.add(place, f"The name '{name}' of a nested resource contains a slash. Write ~ instead.")
                raise AlreadyReported
            return f"{owner.type}/{kind}", (*owner.names, name)
        names = tuple(name.split("/"))
        if kind.count("/") != len(names):
            self._problems.add(
                place,
                f"The name '{name}' has {len(names)} parts, but the type '{kind}' needs {kind.count('/')}."
                " In the name of an entity, write ~ for a slash.",
            )
            raise AlreadyReported
        return kind, names

    def _text(self, written: Object, path: str, name: str) -> str | None:
        """Return the type or the name of a resource. If it cannot be evaluated, record a problem and return None."""
        as_written = written_name(written, name)
        if as_written is None:
            self._problems.add(path, f"The resource has no '{name}'.")
            return None
        value = self._evaluator.value(written[as_written], member(path, as_written))
        if not is_whole(value):
            return None
        if not isinstance(value, str) or not value.strip("/"):
            self._problems.add(member(path, as_written), f"The {name} of a resource must be a string, not {value!r}.")
            return None
        return value

    def _is_deployed(self, written: Object, path: str) -> bool:
        name = written_name(written, "condition")
        if name is None:
            return True
        value = self._evaluator.require_value(written[name], member(path, name))
        if not isinstance(value, bool):
            self._problems.add(member(path, name), f"A condition must be true or false, not {value!r}.")
            raise AlreadyReported
        return value

    def _handles(self, kind: str, names: tuple[str, ...], given: list[str]) -> frozenset[str]:
        provider, *parts = kind.split("/")
        pairs = "/".join(f"{part}/{name}" for part, name in zip(parts, names, strict=True))
        full, joined = f"{provider}/{pairs}", "/".join(names)
        full_id = f"{self._deployment.group_id}/providers/{full}"
        return frozenset(text.lower() for text in (full_id, full, f"{kind}/{joined}", joined, names[-1], *given))

    def _dependencies(self, written: Object, path: str, owner: _Around) -> Iterator[tuple[str, str]]:
        name = written_name(written, "dependsOn")
        if name is None:
            return
        place = member(path, name)
        value = self._evaluator.value(written[name], place)
        if not isinstance(value, list):
            self._problems.add(place, f"The member 'dependsOn' is {kind_of(value)}. Not an array.")
            return
        for at, each in enumerate(value):
            text = each.lower().rstrip("/") if isinstance(each, str) else None
            # A nested resource comes after its owner in any case.
            if text is not None and text not in owner.handles:
                yield text, item(place, at)

    def _sort(self, found: list[Resource]) -> list[Resource]:
        """Return the resources in the template's order, but each after its dependencies.

        Records cycles and unknown names.
        """
        known: dict[str, list[int]] = {}
        for at, resource in enumerate(found):
            for handle in resource.handles:
                known.setdefault(handle, []).append(at)
        before: list[set[int]] = []
        for at, resource in enumerate(found):
            before.append({each for text, _ in resource.depends for each in known.get(text, ()) if each != at})
            for text, path in resource.depends:
                if text not in known and self.is_complete:
                    self._problems.add(path, f"The resource '{text}' is not in the template.")
        order: dict[int, None] = {}
        waiting = list(range(len(found)))
        while ready := [at for at in waiting if before[at] <= order.keys()]:
            order |= dict.fromkeys(ready)
            waiting = [at for at in waiting if at not in order]
        for at in _on_circles(set(waiting), before):
            self._problems.add(found[at].path, f"The resource '{'/'.join(found[at].names)}' depends on itself.")
        return [found[at] for at in order]


def _on_circles(waiting: set[int], before: list[set[int]]) -> list[int]:
    """Return the resources in `waiting` that lie on a cycle of dependencies, or between two cycles."""
    while True:
        wanted = waiting & {each for at in waiting for each in before[at]}
        if wanted == waiting:
            return sorted(waiting)
        waiting = wanted
