"""Finds the namespace and the credential that the options name, and opens the official client with them.

Only the process that connects resolves a secret: the name of an environment variable, a file or a credential class
travels to the tasks, not its value. The one exception is the option `connection_string`, which holds the secret itself.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncClient

from oncebus.connector.errors import BadOption
from oncebus.errors import shown

_WAYS = ("connection_string", "connection_string_env", "connection_string_file", "namespace")
EMULATOR = "UseDevelopmentEmulator"
# Without a limit, a call waits for ever for a broker that is reachable and does not answer.
_PATIENCE = {"retry_total": 0, "try_timeout": 60.0}
C = TypeVar("C", ServiceBusClient, AsyncClient)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a namespace: one of the four ways. Its repr shows no connection string."""

    connection_string: str | None = field(default=None, repr=False)
    variable: str | None = None
    file: str | None = None
    namespace: str | None = None
    credential: str | None = None

    def client(self) -> ServiceBusClient:
        """Open a client that does not retry by itself. Raises `BadOption`.

        The sink and the source retry themselves: they know for how long, and what a new connection means.
        """
        return self._opened(ServiceBusClient, self.token_credential)

    def async_client(self) -> AsyncClient:
        """Open a client for asyncio that does not retry by itself. Raises `BadOption`."""
        return self._opened(AsyncClient, lambda: self.token_credential("azure.identity.aio"))

    def _opened(self, kind: Callable[..., C], credential: Callable[[], Any]) -> C:
        text = self.secret()
        if text is None:
            return kind(self.namespace, credential(), **_PATIENCE)
        self.parts()
        try:
            opened: C = kind.from_connection_string(text, **_PATIENCE)  # type: ignore[attr-defined]
        except ValueError as error:
            raise BadOption(f"The connection string is not usable: {' '.join(str(error).split())}") from None
        return opened

    def secret(self) -> str | None:
        """Return the connection string; None if a credential is used. Raises `BadOption`."""
        if self.connection_string is not None:
            return self.connection_string
        if self.variable is not None:
            value = os.environ.get(self.variable)
            if not value:
                raise BadOption(
                    f"The environment variable {shown(self.variable)} (option 'connection_string_env') is not set in "
                    "this process. The driver and the executors all need it."
                )
            return value.strip()
        if self.file is not None:
            try:
                with open(self.file, encoding="utf-8") as file:
                    return file.read().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a text file"
                raise BadOption(
                    f"Cannot read {shown(self.file)} (option 'connection_string_file'): {reason}."
                ) from None
        return None

    def parts(self) -> dict[str, str]:
        """Return the parts of the connection string; only an endpoint if a credential is used. Raises `BadOption`."""
        text = self.secret()
        if text is None:
            return {"Endpoint": f"sb://{self.namespace}/"}
        parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        with suppress(ValueError):
            if urlsplit(parts.get("Endpoint", "")).hostname:
                return parts
        raise BadOption("The connection string has no part 'Endpoint=sb://…'.")

    @property
    def host(self) -> str:
        """The host of the namespace, with the port if it is not the default one, for error texts."""
        return urlsplit(self.parts()["Endpoint"]).netloc.rpartition("@")[2]

    def token_credential(self, package: str = "azure.identity") -> Any:
        """Return a new credential of the class in azure.identity that the options name. Raises `BadOption`."""
        assert self.credential is not None
        try:
            kind = getattr(importlib.import_module(package), self.credential, None)
        except ImportError:
            raise BadOption(
                "Option 'credential' needs the package azure-identity: pip install azure-identity"
            ) from None
        if kind is None or not hasattr(kind, "get_token"):
            raise BadOption(
                f"Option 'credential' {shown(self.credential)} is not a credential class of azure.identity."
            )
        return kind()


def access_from(options: Mapping[str, str]) -> Access:
    """Return the way to the namespace that the options give. Raises `BadOption` unless it is exactly one."""
    given = [way for way in _WAYS if way in options]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise BadOption(f"Give exactly one of the options {', '.join(_WAYS)}; there is {found}.")
    if ("credential" in options) != (given == ["namespace"]):
        raise BadOption("The options 'namespace' and 'credential' belong together.")
    return Access(
        connection_string=options.get("connection_string"),
        variable=options.get("connection_string_env"),
        file=options.get("connection_string_file"),
        namespace=options.get("namespace"),
        credential=options.get("credential"),
    )
