"""`oncebus token` and `oncebus connection-string`: print secrets made from the keys of the data folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from oncebus.broker.clock import wall_time
from oncebus.model.access import ROOT_RULE, AuthorizationRule, KeyFile, KeyFileError, make_token
from oncebus.model.entities.timespans import duration_in
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.serve.addresses import ClientAddress, read_client_address, read_url
from oncebus.values.durations import SECOND
from oncebus.values.settings import Settings, load

_EXAMPLE = "curl -H \"Authorization: $(oncebus token --entity orders)\" 'http://127.0.0.1:5300/orders/$duplicates'"


LOCATION_OPTIONS = (
    click.option("--url", metavar="URL", help="URL of the broker; defaults to the one recorded in the data folder."),
    click.option("--data", metavar="DIR", help="The broker's data folder."),
    click.option("--key-file", metavar="FILE", help="File with the keys; defaults to the one in the data folder."),
    click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings."),
)
"""The options that say where the broker and its keys are."""


def _location_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(LOCATION_OPTIONS):
        command = option(command)
    return command


@click.command(short_help="Print a token that authorizes requests.", epilog=f"Example: {_EXAMPLE}")
@click.option(
    "--entity",
    metavar="PATH",
    help=("Queue, topic or subscription that the token is for; defaults to the whole namespace."),
)
@click.option(
    "--rule", default=ROOT_RULE, metavar="NAME", show_default=True, help="Authorization rule whose key signs the token."
)
@click.option("--expires", default="1 hour", metavar="DURATION", show_default=True, help="How long the token is valid.")
@_location_options
def token(
    entity: str | None,
    rule: str,
    expires: str,
    url: str | None,
    data: str | None,
    key_file: str | None,
    settings_file: str | None,
) -> None:
    """Print a Shared Access Signature. Keep it secret: until it expires, it allows everything that its rule allows."""
    lasts = duration_in(expires, "option --expires")
    if lasts < SECOND:
        raise RequestError(f"Option --expires has value {expires!r}. Give at least one second.")
    settings = client_settings(data, key_file, settings_file)
    click.echo(sign_token(settings, url_for(settings, url), entity or "", rule, lasts))


@click.command(short_help="Print the connection string.", epilog="Example: oncebus connection-string --rule orders-app")
@click.option(
    "--rule", default=ROOT_RULE, metavar="NAME", show_default=True, help="Authorization rule of the namespace."
)
@click.option("--data", metavar="DIR", help="The broker's data folder.")
@click.option("--key-file", metavar="FILE", help="File with the keys; defaults to the one in the data folder.")
@click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings.")
def connection_string(rule: str, data: str | None, key_file: str | None, settings_file: str | None) -> None:
    """Print the connection string with which clients send and receive messages. Keep it secret: it contains a key.

    Its address is that of the running broker, or the one that the settings give.
    """
    settings = client_settings(data, key_file, settings_file)
    port = settings.port or (settings.amqps_port if settings.is_encrypted else settings.amqp_port)
    address = read_client_address(settings.data) or ClientAddress.of(settings, port)
    click.echo(address.connection_string(_rule(settings, rule)))


def client_settings(data: str | None, key_file: str | None, settings_file: str | None) -> Settings:
    """Return the settings of a command that connects to a broker."""
    flags = {"data": data, "key_file": key_file}
    return load(flags, os.environ, Path(settings_file) if settings_file is not None else None)


def url_for(settings: Settings, given: str | None) -> str:
    """Return the broker's URL: `given`, else the one recorded in its data folder, else the one from the settings."""
    found = given or read_url(settings.data) or f"http://{settings.host}:{settings.http_port}"
    return found.rstrip("/")


def sign_token(settings: Settings, url: str, entity: str, rule: str, lasts: int) -> str:
    """Return a token for an entity of the broker at `url`, valid for `lasts` microseconds."""
    return make_token(f"{url}/{entity}", rule, _rule(settings, rule).primary_key, wall_time() + lasts)


def _rule(settings: Settings, rule: str) -> AuthorizationRule:
    try:
        return KeyFile(settings.key_path).rule(rule)
    except KeyFileError as error:
        # The usual cause: the command runs in a different folder than the broker.
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise RequestError(
                f"{error} Give the broker's data folder with --data, or its keys with --key-file."
            ) from error
        raise
