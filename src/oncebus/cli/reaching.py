"""How a command reaches a running broker: the options that say where it is, and the connection they lead to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from oncebus.access import ROOT_RULE
from oncebus.cli.client import Client, NotAnswered
from oncebus.cli.errors import RequestError
from oncebus.cli.token import client_settings, signed, url_for
from oncebus.durations import MINUTE
from oncebus.settings import Settings

API_VERSION = "2024-01-01"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = "local"
PROVIDER = "Microsoft.ServiceBus"


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a broker is, and with whose key it is asked."""

    rule: str = ROOT_RULE
    url: str | None = None
    data: str | None = None
    key_file: str | None = None
    settings_file: str | None = None

    @contextmanager
    def connected(self, lasts: int = 5 * MINUTE) -> Iterator[Client]:
        """A connection to the broker, good for so long."""
        settings = client_settings(self.data, self.key_file, self.settings_file)
        url = url_for(settings, self.url)
        token = signed(settings, url, "", self.rule, lasts)
        with Client(url, token, trusted(settings, url)) as client:
            yield client


_OPTIONS = (
    click.option("--rule", default=ROOT_RULE, metavar="NAME", show_default=True, help="Rule whose key is used."),
    click.option("--url", metavar="URL", help="Address of the broker; else what the data folder says."),
    click.option("--data", metavar="DIR", help="The broker's data folder."),
    click.option("--key-file", metavar="FILE", help="Keys; else those of the data folder."),
    click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings."),
)


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where the broker is. They arrive as one argument, `reach`."""

    @functools.wraps(command)
    def reached(
        *,
        rule: str,
        url: str | None,
        data: str | None,
        key_file: str | None,
        settings_file: str | None,
        **rest: Any,
    ) -> None:
        command(reach=Reach(rule, url, data, key_file, settings_file), **rest)

    with_options: Callable[..., None] = reached
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def trusted(settings: Settings, url: str) -> Path | None:
    """The certificate to trust: the broker's, as far as it is known; None where there is none, or no need of one."""
    if not url.startswith("https:"):
        return None
    # Here, because few need it, and it takes a while to load.
    from oncebus.serve.certificate import CERTIFICATE

    own = settings.data / CERTIFICATE
    return settings.tls_cert or (own if own.exists() else None)


class Management:
    """Asks for resources as the Resource Manager's clients do."""

    def __init__(self, client: Client, namespace: str | None = None, group: str | None = None) -> None:
        self._client = client
        self._group = group or GROUP
        own = self._own_namespace()
        if namespace is not None and namespace.lower() != own.lower():
            raise RequestError(
                f"Option --namespace-name has value '{namespace}'. The broker at {client.url} is the namespace '{own}'."
            )
        self._base = f"{self.scope}/providers/{PROVIDER}/namespaces/{quote(own, safe='')}"

    @property
    def scope(self) -> str:
        """The path of the resource group."""
        return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{quote(self._group, safe='')}"

    def get(self, path: str) -> dict[str, Any] | None:
        """A resource below the namespace; None where there is none."""
        try:
            return self._client.ask_json("GET", self._url(path))
        except NotAnswered as error:
            if error.status == 404:
                return None
            raise

    def put(self, path: str, properties: dict[str, Any]) -> dict[str, Any]:
        """Make a resource below the namespace as it is described."""
        return self._client.ask_json("PUT", self._url(path), {"properties": properties})

    def delete(self, path: str) -> bool:
        """Delete a resource below the namespace; whether there was one."""
        return self._client.ask("DELETE", self._url(path)).status != 204

    def list(self, path: str) -> list[dict[str, Any]]:
        """All resources of a list below the namespace, page by page."""
        found: list[dict[str, Any]] = []
        while True:
            page = self._client.ask_json("GET", f"{self._url(path)}&$skip={len(found)}&$top=1000")
            found += page["value"]
            if not page.get("nextLink"):
                return found

    def _url(self, path: str) -> str:
        return f"{self._base}/{path}?api-version={API_VERSION}"

    def _own_namespace(self) -> str:
        path = f"/subscriptions/{SUBSCRIPTION}/providers/{PROVIDER}/namespaces?api-version={API_VERSION}"
        found = self._client.ask_json("GET", path)
        try:
            return str(found["value"][0]["name"])
        except (KeyError, IndexError, TypeError):
            raise NotAnswered(f"What answers at {self._client.url} is no broker.") from None
