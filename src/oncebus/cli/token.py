"""`oncebus token`: a token for requests over HTTP, signed with a key of the data folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from oncebus.access import ROOT_RULE, KeyFile, KeyFileError, make_token
from oncebus.broker.clock import wall_time
from oncebus.cli.errors import RequestError
from oncebus.durations import SECOND
from oncebus.entities.timespans import duration_in
from oncebus.serve.addresses import read_url
from oncebus.settings import Settings, load

_EXAMPLE = "curl -H \"Authorization: $(oncebus token --entity orders)\" 'http://127.0.0.1:5300/orders/$duplicates'"


@click.command(short_help="Print a token that signs requests.", epilog=f"Example: {_EXAMPLE}")
@click.option("--entity", metavar="PATH", help="Queue, topic or subscription that it is for; else the whole namespace.")
@click.option("--rule", default=ROOT_RULE, metavar="NAME", show_default=True, help="Rule whose key signs it.")
@click.option("--expires", default="1 hour", metavar="DURATION", show_default=True, help="How long it is good.")
@click.option("--url", metavar="URL", help="Address of the broker; else what the data folder says.")
@click.option("--data", metavar="DIR", help="The broker's data folder.")
@click.option("--key-file", metavar="FILE", help="Keys; else those of the data folder.")
@click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings.")
def token(
    entity: str | None,
    rule: str,
    expires: str,
    url: str | None,
    data: str | None,
    key_file: str | None,
    settings_file: str | None,
) -> None:
    """Print a Shared Access Signature. Who has it may do what the rule allows until it expires: keep it secret."""
    lasts = duration_in(expires, "option --expires")
    if lasts < SECOND:
        raise RequestError(f"Option --expires has value {expires!r}. Give at least a second.")
    settings = client_settings(data, key_file, settings_file)
    click.echo(signed(settings, url_for(settings, url), entity or "", rule, lasts))


def client_settings(data: str | None, key_file: str | None, settings_file: str | None) -> Settings:
    """The settings of a command that asks a broker."""
    flags = {"data": data, "key_file": key_file}
    return load(flags, os.environ, Path(settings_file) if settings_file is not None else None)


def url_for(settings: Settings, given: str | None) -> str:
    """Where the broker is: as given, as its data folder says, or where the settings would have it."""
    found = given or read_url(settings.data) or f"http://{settings.host}:{settings.http_port}"
    return found.rstrip("/")


def signed(settings: Settings, url: str, entity: str, rule: str, lasts: int) -> str:
    """A token for an entity of the broker at an address."""
    return make_token(f"{url}/{entity}", rule, _key(settings, rule), wall_time() + lasts)


def _key(settings: Settings, rule: str) -> str:
    try:
        return KeyFile(settings.key_path).rule(rule).primary_key
    except KeyFileError as error:
        # Most often the command was run in another folder than the broker.
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise RequestError(
                f"{error} Give the broker's data folder with --data, or its keys with --key-file."
            ) from error
        raise
