"""`docs/reference/openapi.json` has the same paths, methods and rights as the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncebus.protocols.http.paths import HEALTH, LIVE, READY, Shape, target_of
from tests.protocols.http.http_front import LISTENER, SENDER, Front, Shared, token

DOCUMENT: Any = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "openapi.json").read_text())
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PROBES = {HEALTH.decode(), LIVE.decode(), READY.decode()}
IN_PATHS = {"{entity}": "no-such-queue", "{id}": "1", "{lockToken}": "00000000-0000-0000-0000-000000000001"}


def requested(path: str) -> str:
    for name, value in IN_PATHS.items():
        path = path.replace(name, value)
    return path


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        part = list(part.values())
    for each in part if isinstance(part, list) else []:
        yield from references(each)


def test_the_document_has_all_paths() -> None:
    paths = set(DOCUMENT["paths"])
    assert paths >= PROBES
    shapes = [target_of(requested(path).encode()).shape for path in sorted(paths - PROBES)]
    assert len(shapes) == len(Shape)
    assert set(shapes) == set(Shape)


def test_the_document_has_the_methods_and_rights_of_the_broker(shared: Shared) -> None:
    async def play(front: Front) -> None:
        for path, described in DOCUMENT["paths"].items():
            for method in METHODS:
                operation = described.get(method.lower())
                for rule in (SENDER, LISTENER):
                    signed = None if path in PROBES else token(front.time, rule)
                    answer = await front.ask(method, requested(path), query="timeout=0", token=signed)
                    request = f"{method} {path} as {rule.name}: {answer.text}"
                    assert (answer.status != 405) == (operation is not None), request
                    if operation is not None:
                        needed = operation.get("x-right")
                        may = needed is None or needed in rule.rights
                        assert (answer.status != 401) == may, request
                        if answer.status == 401:
                            assert needed in answer.text, request
                        assert str(answer.status) in operation["responses"], request

    shared(play)


def test_the_document_is_whole() -> None:
    for reference in references(DOCUMENT):
        found = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
    operations = [each for path in DOCUMENT["paths"].values() for each in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for path, described in DOCUMENT["paths"].items():
        wanted = {name for name in IN_PATHS if name in path}
        for operation in described.values():
            named = {
                f"{{{each['$ref'].rpartition('/')[2]}}}" for each in operation.get("parameters", []) if "$ref" in each
            }
            assert wanted <= named, path
