"""Raw requests of the Resource Manager, without a client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.protocols.http.http_front import Answer, Front

SCOPE = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/group/providers/Microsoft.ServiceBus"
NAMESPACE = f"{SCOPE}/namespaces/oncebus"
VERSION = "api-version=2024-01-01"


@dataclass
class Manager:
    """Sends requests for resources below the namespace to an application."""

    front: Front

    async def ask(
        self, method: str, path: str, content: object = None, *, query: str = VERSION, token: str | None = ""
    ) -> Answer:
        body = b"" if content is None else json.dumps(content).encode()
        return await self.front.ask(method, f"{NAMESPACE}{path}", body, query=query, token=token)

    async def get(self, path: str, query: str = VERSION) -> Any:
        found = await self.ask("GET", path, query=query)
        assert found.status == 200, found.text
        return found.json

    async def put(self, path: str, **properties: object) -> Any:
        made = await self.ask("PUT", path, {"properties": properties})
        assert made.status == 200, made.text
        return made.json

    async def refused(self, method: str, path: str, content: object = None, **options: Any) -> tuple[int, str, str]:
        """Return the status, the code and the message of an error response."""
        return refusal(await self.ask(method, path, content, **options))


def refusal(answer: Answer) -> tuple[int, str, str]:
    """Return the status, the code and the message of an error response."""
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json) == ["error"]
    return answer.status, answer.json["error"]["code"], answer.json["error"]["message"]
