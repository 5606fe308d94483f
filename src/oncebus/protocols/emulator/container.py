"""The contract of the official emulator's container image, so that Oncebus' image can take its place.

The emulator's image is configured by environment variables and by a file at a fixed path. Here they become a command
line of `oncebus` and environment variables of our settings. A setting that the user gives wins over the emulator's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oncebus.values.errors import OncebusError
from oncebus.values.settings import flag, variable

CONFIG = Path("/ServiceBus_Emulator/ConfigFiles/Config.json")
"""Users mount their configuration here."""
CONFIG_JSON = "CONFIG_JSON"
"""A variable with the content of the file, for where mounting a file is difficult, such as services of CI."""
LICENCE = "ACCEPT_EULA"
HTTP_PORT = "EMULATOR_HTTP_PORT"
WITHOUT_EFFECT = ("SQL_SERVER", "MSSQL_SA_PASSWORD", "SQL_WAIT_INTERVAL")
"""Variables for the emulator's database. Oncebus has none."""

_GATEWAYS = ("serve", "gateway")
_YES = ("y", "yes", "true", "1")
_PORT = re.compile(r"[0-9]{1,5}")


class BadVariable(OncebusError, ValueError):
    """A variable of the emulator's image has a value that it cannot have."""


class ContainerStart(NamedTuple):
    """How to start in a container: the words after `oncebus`, variables to set, and notes for the user."""

    words: list[str]
    variables: dict[str, str]
    notes: list[str]


def start_of(
    arguments: Sequence[str], environment: Mapping[str, str], *, config: Path | None, default_config: Path
) -> ContainerStart:
    """Return how to start with the arguments and the environment of a container. Raises `BadVariable`.

    Without the name of a command, `serve` runs. `config` is the file that the user mounted, if there is one.
    `ACCEPT_EULA` says that the user expects the emulator: its well-known key, reachable from the network, and the
    entities of `default_config` if the user gave none.
    """
    words = list(arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("--help", "--version")):
        words.insert(0, "serve")
    if words[0] not in _GATEWAYS:
        return ContainerStart(words, {}, [])
    wanted: dict[str, str] = {}
    is_emulator = _accepts(environment)
    if is_emulator:
        wanted |= {"emulator": "true", "insecure_emulator": "true"}
    if environment.get(CONFIG_JSON):
        if config is not None:
            raise BadVariable(f"There is both a file at {CONFIG} and an environment variable {CONFIG_JSON}. Give one.")
        wanted["config_json"] = environment[CONFIG_JSON]
    elif config is not None or is_emulator:
        wanted["config"] = str(config or default_config)
    if port := environment.get(HTTP_PORT):
        if not _PORT.fullmatch(port) or not 0 < int(port) <= 65535:
            raise BadVariable(f"Environment variable {HTTP_PORT} has value '{port}'. Not a port.")
        wanted["http_port"] = port
    variables = {
        variable(name): value
        for name, value in wanted.items()
        if not environment.get(variable(name)) and not _has_flag(words, flag(name))
    }
    return ContainerStart(words, variables, _notes(environment))


def _accepts(environment: Mapping[str, str]) -> bool:
    given = environment.get(LICENCE, "")
    if given and given.strip().lower() not in _YES:
        raise BadVariable(
            f"Environment variable {LICENCE} has value '{given}'. Set it to Y to start in place of the official"
            " emulator, or leave it out to start with keys that only you know."
        )
    return bool(given)


def _has_flag(words: Sequence[str], name: str) -> bool:
    return any(word == name or word.startswith(f"{name}=") for word in words)


def _notes(environment: Mapping[str, str]) -> list[str]:
    unused = [name for name in WITHOUT_EFFECT if environment.get(name)]
    if not unused:
        return []
    have = "have" if len(unused) > 1 else "has"
    return [f"{', '.join(unused)} {have} no effect: Oncebus needs no SQL Server."]
