"""Finds the namespace and the credential that the options name, and opens the official client with them.

Only the process that connects resolves a secret: the name of an environment variable, a file or a credential class
travels to the tasks, not its value. The one exception is the option `connection_string`, which holds the secret itself.

Only `Access.resolve` reads a variable or a file. A file may be on a disk that does not answer, or may be replaced at
any moment. So it is read inside an attempt (see `oncebus.connector.attempts`), once for each connection.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncClient

from oncebus.connector.errors import BadOption
from oncebus.values.errors import clip

_WAYS = ("connection_string", "connection_string_env", "connection_string_file", "namespace")
EMULATOR = "UseDevelopmentEmulator"
_LONGEST_STRING = 64 << 10
_SECRET_PART = re.compile(r"sharedaccess\w*\s*=", re.IGNORECASE)
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

    @property
    def may_change(self) -> bool:
        """Whether the next connection may get another connection string, because the file was replaced."""
        return self.file is not None

    def resolve(self, entity: str) -> Access:
        """Return an access that holds the connection string itself, if there is one.

        Raises `BadOption`, also if the connection string is for another entity.
        """
        text = self._secret()
        found = self if text is None else Access(connection_string=text)
        path = found.parts().get("EntityPath")
        if path and "=" in path:
            # It would show the next part, which may be the key.
            raise BadOption("The part EntityPath of the connection string contains '='. Is a ';' missing?")
        if path and path != entity:
            raise BadOption(f"The connection string is for {clip(path)} (its part EntityPath), not for {clip(entity)}.")
        return found

    def client(self) -> ServiceBusClient:
        """Open a client that does not retry by itself, with a resolved access. Raises `BadOption`.

        The sink and the source retry themselves: they know for how long, and what a new connection means.
        """
        return self._open_client(ServiceBusClient, self.token_credential)

    def async_client(self) -> AsyncClient:
        """Open a client for asyncio that does not retry by itself, with a resolved access. Raises `BadOption`."""
        return self._open_client(AsyncClient, lambda: self.token_credential("azure.identity.aio"))

    def _open_client(self, kind: Callable[..., C], credential: Callable[[], Any]) -> C:
        if self.connection_string is None:
            return kind(self.namespace, credential(), **_PATIENCE)
        try:
            opened: C = kind.from_connection_string(self.connection_string, **_PATIENCE)  # type: ignore[attr-defined]
        except ValueError as error:
            raise BadOption(f"The connection string is not usable: {' '.join(str(error).split())}") from None
        return opened

    def _secret(self) -> str | None:
        """Return the connection string; None if a credential is used. Raises `BadOption`."""
        if self.variable is not None:
            value = os.environ.get(self.variable)
            if not value:
                raise BadOption(
                    f"The environment variable {clip(self.variable)} (option 'connection_string_env') is not set in "
                    "this process. The driver and the executors all need it."
                )
            return value.strip()
        if self.file is not None:
            return _text_of(self.file)
        return None if self.connection_string is None else self.connection_string.strip()

    def parts(self) -> dict[str, str]:
        """Return the parts of the connection string; only an endpoint if a credential is used. Raises `BadOption`."""
        text = self._secret()
        if text is None:
            return {"Endpoint": f"sb://{self.namespace}/"}
        parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        endpoint = parts.get("Endpoint", "")
        if "=" in endpoint:
            # Errors show its host, which would end with the next part.
            raise BadOption("The part Endpoint of the connection string contains '='. Is a ';' missing?")
        with suppress(ValueError):
            if urlsplit(endpoint).hostname:
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
            raise BadOption(f"Option 'credential' {clip(self.credential)} is not a credential class of azure.identity.")
        try:
            return kind()
        except Exception as error:
            raise BadOption(
                f"Option 'credential' {clip(self.credential)} cannot be used without arguments: "
                f"{' '.join(str(error).split())}"
            ) from None


def _text_of(path: str) -> str:
    """Return the content of the file with the connection string. Raises `BadOption`."""
    try:
        # Opening a pipe waits for its writer, and its content can be read only once.
        if not stat.S_ISREG(os.stat(path).st_mode):
            reason = "it is not a file"
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(_LONGEST_STRING + 1).strip()
            if text and len(text) <= _LONGEST_STRING:
                return text
            reason = "it is longer than a connection string" if text else "it is empty"
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else "it is not a text file"
    raise BadOption(f"Cannot read {clip(path)} (option 'connection_string_file'): {reason}.")


def access_from(options: Mapping[str, str]) -> Access:
    """Return the way to the namespace that the options give. Raises `BadOption` unless it is exactly one."""
    given = [way for way in _WAYS if way in options]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise BadOption(f"Give exactly one of the options {', '.join(_WAYS)}; there is {found}.")
    for way in _WAYS[1:]:
        if _SECRET_PART.search(options.get(way, "")):
            # The value would be shown in errors.
            raise BadOption(f"Option '{way}' holds a connection string itself: use the option 'connection_string'.")
    if ("credential" in options) != (given == ["namespace"]):
        raise BadOption("The options 'namespace' and 'credential' belong together.")
    return Access(
        connection_string=options.get("connection_string"),
        variable=options.get("connection_string_env"),
        file=options.get("connection_string_file"),
        namespace=options.get("namespace"),
        credential=options.get("credential"),
    )
