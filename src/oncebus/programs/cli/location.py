"""The location of a running broker: the options that give it, and clients for the broker's APIs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from oncebus.model.access import ROOT_RULE
from oncebus.programs.cli.client import Client, NotAnswered
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.token import LOCATION_OPTIONS, client_settings, sign_token, url_for
from oncebus.protocols.management.writing import API_VERSION, GROUP, SUBSCRIPTION
from oncebus.values.durations import MINUTE
from oncebus.values.settings import Settings

PROVIDER = "Microsoft.ServiceBus"


@dataclass(frozen=True, slots=True)
class BrokerLocation:
    """The broker that the command line gives, and the authorization rule whose key signs the requests."""

    rule: str = ROOT_RULE
    url: str | None = None
    data: str | None = None
    key_file: str | None = None
    settings_file: str | None = None
    ca_file: Path | None = None

    @contextmanager
    def connect(self, lasts: int = 5 * MINUTE, entity: str = "") -> Iterator[Client]:
        """Yield a client whose token is valid for `lasts` microseconds, for one entity or the whole namespace."""
        settings = client_settings(self.data, self.key_file, self.settings_file)
        url = url_for(settings, self.url)
        token = sign_token(settings, url, entity, self.rule, lasts)
        with Client(url, token, _trusted_certificate(settings, url), authority=self.ca_file) as client:
            yield client


_OPTIONS = (
    click.option(
        "--rule",
        default=ROOT_RULE,
        metavar="NAME",
        show_default=True,
        help="Authorization rule whose key signs the requests.",
    ),
    *LOCATION_OPTIONS,
    click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Certificates, in PEM format, that sign the broker's; defaults to the broker's own in the data folder.",
    ),
)


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the broker is. The command gets them as one argument, `broker`."""

    @functools.wraps(command)
    def run_with_location(
        *,
        rule: str,
        url: str | None,
        data: str | None,
        key_file: str | None,
        settings_file: str | None,
        ca_file: Path | None,
        **rest: Any,
    ) -> None:
        command(broker=BrokerLocation(rule, url, data, key_file, settings_file, ca_file), **rest)

    with_options: Callable[..., None] = run_with_location
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def management_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the broker is, and connect to it for the time of the command.

    The command gets `management` as an argument, in place of these options and of those of `azure_options`, which it
    needs too.
    """

    @functools.wraps(command)
    def run_with_management(
        *, broker: BrokerLocation, namespace_name: str | None, resource_group: str | None, **rest: Any
    ) -> None:
        with broker.connect() as client:
            command(management=Management(client, namespace_name, resource_group), **rest)

    return broker_options(run_with_management)


def _trusted_certificate(settings: Settings, url: str) -> Path | None:
    """Return the file of the broker's certificate, for the client to trust. None without TLS, or if it is not known."""
    if not url.startswith("https:"):
        return None
    # Imported late, because few commands need it and it loads slowly.
    from oncebus.programs.serve.certificate import CERTIFICATE

    own = settings.data / CERTIFICATE
    return settings.tls_cert or (own if own.exists() else None)


class Management:
    """Manages entities and rules through the broker's Resource Manager API.

    Raises `RequestError` if `namespace` is given and is not the broker's.
    """

    def __init__(self, client: Client, namespace: str | None = None, group: str | None = None) -> None:
        self.client = client
        self._group = group or GROUP
        own = self._own_namespace()
        if namespace is not None and namespace.lower() != own.lower():
            raise RequestError(
                f"Option --namespace-name has value '{namespace}'. The broker at {client.url} is the namespace '{own}'."
            )
        self._base = f"{self.scope}/providers/{PROVIDER}/namespaces/{quote(own, safe='')}"

    @property
    def scope(self) -> str:
        """Return the path of the resource group."""
        return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{quote(self._group, safe='')}"

    def get(self, path: str, what: str) -> dict[str, Any]:
        """Return a resource of the namespace. Raises `RequestError`, which calls it `what`, if it does not exist."""
        try:
            return self.client.ask_json("GET", self._url(path))
        except NotAnswered as error:
            if error.status == 404:
                raise RequestError(f"There is no {what}.") from None
            raise

    def put(self, path: str, properties: dict[str, Any]) -> dict[str, Any]:
        """Create a resource of the namespace or replace its properties. Return the resource."""
        return self.client.ask_json("PUT", self._url(path), {"properties": properties})

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Run an operation on a resource of the namespace. Return its answer."""
        return self.client.ask_json("POST", self._url(path), content)

    def delete(self, path: str) -> bool:
        """Delete a resource of the namespace. Return whether it existed."""
        return self.client.ask("DELETE", self._url(path)).status != 204

    def list(self, path: str) -> list[dict[str, Any]]:
        """Return all resources of a collection. Fetches all its pages."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.client.ask_json("GET", f"{self._url(path)}&$skip={len(found)}&$top=1000")
            found += page["value"]
            if not page.get("nextLink"):
                return found

    def _url(self, path: str) -> str:
        return f"{self._base}/{path}?api-version={API_VERSION}"

    def _own_namespace(self) -> str:
        path = f"/subscriptions/{SUBSCRIPTION}/providers/{PROVIDER}/namespaces?api-version={API_VERSION}"
        found = self.client.ask_json("GET", path)
        try:
            return str(found["value"][0]["name"])
        except (KeyError, IndexError, TypeError):
            raise self.client.not_a_broker() from None
