"""The settings of `oncebus serve`, `gateway` and `pipeline`, from flags, the environment or a TOML file."""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from oncebus.values.durations import DAY, SECOND, BadDuration, parse_duration, spelt_out
from oncebus.values.errors import OncebusError
from oncebus.values.hosts import is_safe_url, is_this_machine
from oncebus.values.sizes import GIB, parse_size

PREFIX = "ONCEBUS_"
KEY_FILE_NAME = "keys.json"
TIERS = ("Basic", "Standard", "Premium")
DATA_ACCESS = ("owner", "group", "anyone")
LOG_FORMATS = ("text", "json")
# The range of `longest_window`. The lower end is the limit of Azure.
LEAST_LONGEST_WINDOW, MOST_LONGEST_WINDOW = 7 * DAY, 365 * DAY
LOG_LEVELS = ("debug", "info", "warning", "error")

_NAMESPACE = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?")
_NO_NAMESPACE = "Not a namespace name: 1 to 50 letters, digits and hyphens, starting with a letter."
_HOST = re.compile(r"[A-Za-z0-9._:-]+|\[[0-9A-Fa-f:.]+\]")


class SettingsError(OncebusError, ValueError):
    """A setting is invalid. The message names the setting, its source and its value."""


class _Bad(ValueError):
    """A value is invalid. The message says why, for example 'Not a port.'"""


class _Parser(NamedTuple):
    read: Callable[[object], Any]
    shown: Callable[[Any], str] = str


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Bad("Not a text.")
    return value.strip()


def _matching(pattern: re.Pattern[str], otherwise: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _Bad(otherwise)
        return value

    return read


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
        raise _Bad("Not a path.")
    return Path(value).expanduser()


def _whole(least: int, most: int, otherwise: str | None = None) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _Bad(otherwise or f"Not a number from {least} to {most}.")
        return value

    return read


def _choice(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        for choice in choices:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        raise _Bad(f"Not one of {', '.join(choices)}.")

    return read


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if not isinstance(value, str) or value.strip().lower() not in known:
        raise _Bad("Not true or false.")
    return known[value.strip().lower()]


def _issuer(value: object) -> str:
    text = _text(value)
    if not is_safe_url(text) or re.search(r"[?#\s]", text):
        raise _Bad("Not an https address of an identity provider. http is only for this machine.")
    return text


def _size(value: object) -> int:
    try:
        return parse_size("" if isinstance(value, bool) or not isinstance(value, str | int) else str(value))
    except ValueError as error:
        raise _Bad(str(error)) from None


def _duration(value: object) -> int:
    try:
        length = parse_duration(spelt_out(value), "value") if isinstance(value, str) else 0
    except BadDuration:
        length = 0
    if not 0 < length < 1 << 62:
        raise _Bad("Not a duration: write it like 30s, '30 seconds' or 'PT30S'.")
    return length


def _longest_window(value: object) -> int:
    length = _duration(value)
    if not LEAST_LONGEST_WINDOW <= length <= MOST_LONGEST_WINDOW:
        raise _Bad(f"Not a duration from {LEAST_LONGEST_WINDOW // DAY} to {MOST_LONGEST_WINDOW // DAY} days.")
    return length


_PORT = _Parser(_whole(0, 65535, "Not a port."))
_PATH = _Parser(_path, lambda path: f"./{path}" if not path.is_absolute() else str(path))
_BYTES = _Parser(_size, lambda size: f"{size // GIB} GiB" if size % GIB == 0 else str(size))
_DURATION = _Parser(_duration, lambda length: f"{length // SECOND} seconds")
_DAYS = _Parser(_longest_window, lambda length: f"{length // DAY} days")
_FLAG = _Parser(_flag, lambda flag: str(flag).lower())


@dataclass(frozen=True)
class Settings:
    """All settings, with valid values. Sizes are in bytes, durations in microseconds."""

    data: Path = Path("oncebus-data")
    host: str = "127.0.0.1"
    token_host: str | None = None
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_claims: Path | None = None
    port: int | None = None
    http_port: int = 5300
    amqp_port: int = 5672
    amqps_port: int = 5671
    metrics_port: int | None = None
    metrics_rule: str | None = None
    tier: str | None = None
    namespace: str = "oncebus"
    data_access: str = "owner"
    master: str = "local[*]"
    insecure_cluster: bool = False
    shards: int = 2
    cache: Path | None = None
    key_file: Path | None = None
    inbox_limit: int = 4 * GIB
    drop_record: int = 10_000
    longest_window: int = 7 * DAY
    lag_limit: int = 30 * SECOND
    heartbeat_limit: int = 15 * SECOND
    log_format: str = "text"
    log_level: str = "info"
    config: Path | None = None
    config_json: str | None = None
    emulator: bool = False
    insecure_emulator: bool = False
    ephemeral: bool = False
    tls: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def key_path(self) -> Path:
        """Return the path of the key file."""
        return self.data / KEY_FILE_NAME if self.key_file is None else self.key_file

    @property
    def is_encrypted(self) -> bool:
        """Return whether the ports use TLS."""
        return self.tls or self.tls_cert is not None


class _About(NamedTuple):
    parser: _Parser
    help: str


SETTINGS = {
    "data": _About(_PATH, "Folder for all data: inbox, ledger, outbox, store"),
    "host": _About(_Parser(_matching(_HOST, "Not a host.")), "Address to listen on"),
    "token_host": _About(
        _Parser(_matching(_HOST, "Not a host.")), "Host that tokens must be signed for; defaults to any host"
    ),
    "oidc_issuer": _About(
        _Parser(_issuer), "URL of an identity provider whose tokens are valid too; needs `oidc_audience`, `oidc_claims`"
    ),
    "oidc_audience": _About(_Parser(_text), "Audience that tokens of `oidc_issuer` must have"),
    "oidc_claims": _About(_PATH, "TOML file that says which claims in tokens of `oidc_issuer` grant which rights"),
    "port": _About(_PORT, "One more port for both AMQP and HTTP; may be the same as another; 0 picks a free one"),
    "http_port": _About(_PORT, "Port for HTTP; 0 picks a free one"),
    "amqp_port": _About(_PORT, "Port for AMQP without TLS; 0 picks a free one"),
    "amqps_port": _About(_PORT, "Port for AMQP with TLS, used instead of `amqp_port`; 0 picks a free one"),
    "metrics_port": _About(
        _PORT, "One more port, on this machine alone, for metrics and health without a key; 0 picks a free one"
    ),
    "metrics_rule": _About(
        _Parser(_text),
        "Authorization rule of the namespace whose key may read `GET /metrics` and nothing else, whatever its rights",
    ),
    "tier": _About(
        _Parser(_choice(TIERS)),
        "Basic, Standard or Premium; defaults to the current tier, or Standard for a new namespace",
    ),
    "namespace": _About(_Parser(_matching(_NAMESPACE, _NO_NAMESPACE)), "Name of the namespace"),
    "data_access": _About(
        _Parser(_choice(DATA_ACCESS)), "Who may use the data folder: owner, group (for Spark's workers) or anyone"
    ),
    "master": _About(_Parser(_text), "URL of the Spark master"),
    "insecure_cluster": _About(_FLAG, "Allow a cluster that does not authenticate and encrypt Spark's ports"),
    "shards": _About(_Parser(_whole(1, 1024)), "Number of shards of the inbox; fixed once there is data"),
    "cache": _About(
        _PATH, "Folder for a cache that speeds up later starts; defaults to one in the user's cache folder"
    ),
    "key_file": _About(_PATH, f"File with the keys of the namespace; defaults to `{KEY_FILE_NAME}` in `data`"),
    "inbox_limit": _About(_BYTES, "Size of unprocessed messages on disk above which sends are refused"),
    "drop_record": _About(_Parser(_whole(0, 10_000_000)), "Number of dropped duplicates to remember per entity"),
    "longest_window": _About(
        _DAYS, "Longest duplicate detection window allowed; above 7 days it is an extension beyond Azure"
    ),
    "lag_limit": _About(_DURATION, "Age of the oldest unprocessed message above which the health check fails"),
    "heartbeat_limit": _About(_DURATION, "Time without a heartbeat of the pipeline after which the health check fails"),
    "log_format": _About(_Parser(_choice(LOG_FORMATS)), "Log format: text or json"),
    "log_level": _About(_Parser(_choice(LOG_LEVELS)), "Lowest level to log: debug, info, warning or error"),
    "config": _About(_PATH, "`Config.json` of the official emulator with entities to create at start"),
    "config_json": _About(_Parser(_text), "Content of such a file, instead of `config`"),
    "emulator": _About(_FLAG, "Accept the official emulator's well-known key, and print its connection strings"),
    "insecure_emulator": _About(
        _FLAG, "Let `emulator` listen on the network: anyone who reaches the ports can use the well-known key"
    ),
    "ephemeral": _About(
        _FLAG, "Keep the data in a temporary folder instead of `data`, until the end; allows `POST /$reset`, for tests"
    ),
    "tls": _About(_FLAG, "Use TLS, with a self-signed certificate unless `tls_cert` is given"),
    "tls_cert": _About(_PATH, "Certificate chain in PEM format; needs `tls_key`"),
    "tls_key": _About(_PATH, "Private key in PEM format; needs `tls_cert`"),
}


class _Given(NamedTuple):
    value: object
    source: str


def load(flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None) -> Settings:
    """Return the settings. Each comes from the first source that has it: flags, environment, file, default.

    A flag that is None and an empty environment variable count as not given. Relative paths in the file start at the
    file's folder. Raises `SettingsError`.
    """
    given = _from_file(file) if file is not None else {}
    for name in SETTINGS:
        if text := environment.get(variable(name), ""):
            given[name] = _Given(text, f"the environment variable {variable(name)}")
    for name, value in flags.items():
        if value is not None:
            _check_known(name, "the command line")
            given[name] = _Given(value, f"the flag {flag(name)}")
    settings = Settings(**{name: _value(name, entry) for name, entry in given.items()})
    _check_together(settings, given)
    return settings


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the command line flag of a setting."""
    return "--" + name.replace("_", "-")


def table() -> str:
    """Return a table of all settings with their defaults, in Markdown."""
    rows = ["| setting | flag | environment | default | |", "|---|---|---|---|---|"]
    for entry in fields(Settings):
        name, about = entry.name, SETTINGS[entry.name]
        shown = "" if entry.default is None else f"`{about.parser.shown(entry.default)}`"
        rows.append(f"| `{name}` | `{flag(name)}` | `{variable(name)}` | {shown} | {about.help} |")
    return "\n".join(rows)


def _from_file(file: Path) -> dict[str, _Given]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Settings file '{file}' cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"Settings file '{file}' is not TOML: {' '.join(str(error).split())}.") from error
    given = {}
    for name, value in content.items():
        _check_known(name, f"the file '{file}'")
        is_path = SETTINGS[name].parser is _PATH
        if is_path and isinstance(value, str) and value.strip():
            value = str(file.parent / Path(value).expanduser())
        given[name] = _Given(value, f"the file '{file}'")
    return given


def _check_known(name: str, source: str) -> None:
    if name in SETTINGS:
        return
    nearest = difflib.get_close_matches(name.replace("-", "_").lower(), SETTINGS, n=1)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else f" There are {', '.join(SETTINGS)}."
    raise SettingsError(f"Setting '{name}' from {source} is not known.{hint}")


def _value(name: str, given: _Given) -> Any:
    try:
        return SETTINGS[name].parser.read(given.value)
    except _Bad as error:
        raise _wrong(name, given, str(error)) from None


def _wrong(name: str, given: _Given, why: str) -> SettingsError:
    value = str(given.value) if isinstance(given.value, Path) else given.value
    return SettingsError(f"Setting '{name}' from {given.source} has value {value!r}. {why}")


def _check_together(settings: Settings, given: Mapping[str, _Given]) -> None:
    """Check the combinations of settings. Raises `SettingsError`."""
    amqp = "amqps_port" if settings.is_encrypted else "amqp_port"
    if settings.http_port == getattr(settings, amqp) != 0 and settings.http_port != settings.port:
        name, other = ("http_port", amqp) if "http_port" in given else (amqp, "http_port")
        raise _wrong(name, given[name], f"'{other}' is the same port. Set 'port' to it for a port that serves both.")
    if settings.emulator and not settings.insecure_emulator and not is_this_machine(settings.host):
        # The emulator's key is public, so other machines must not be able to connect unless the user asks for it.
        raise _wrong(
            "host",
            given["host"],
            "With 'emulator' it must be this machine: 127.0.0.1, ::1 or localhost. "
            "'insecure_emulator' allows it, and opens the broker to everyone who can reach it.",
        )
    if "config" in given and "config_json" in given:
        raise _wrong("config", given["config"], "'config_json' is given too. Leave one of them out.")
    together = (("tls_cert", "tls_key"), ("oidc_issuer", "oidc_audience", "oidc_claims"))
    for name, other in (pair for names in together for pair in itertools.permutations(names, 2)):
        if name in given and other not in given:
            raise _wrong(name, given[name], f"Give '{other}' too.")
