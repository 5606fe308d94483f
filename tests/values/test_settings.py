from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.values import settings as settings_module
from oncebus.values.durations import DAY, MINUTE, SECOND
from oncebus.values.settings import Settings, SettingsError, load, table, variable

NAMES = [entry.name for entry in fields(Settings)]


def write(folder: Path, text: str) -> Path:
    file = folder / "oncebus.toml"
    file.write_text(text)
    return file


def test_settings_have_defaults() -> None:
    settings = load({}, {}, None)
    assert settings == Settings()
    assert (settings.http_port, settings.amqp_port, settings.host) == (5300, 5672, "127.0.0.1")
    assert settings.inbox_limit == 4 * 1024**3
    assert settings.key_path == Path("oncebus-data/keys.json")


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "http_port = 1\namqp_port = 2\nshards = 3\n")
    environment = {"ONCEBUS_HTTP_PORT": "11", "ONCEBUS_AMQP_PORT": "12", "HTTP_PORT": "99", "ONCEBUS_OTHER": "x"}
    settings = load({"http_port": 21, "master": None}, environment, file)
    assert (settings.http_port, settings.amqp_port, settings.shards, settings.master) == (21, 12, 3, "local[*]")


def test_an_empty_variable_counts_as_not_given(tmp_path: Path) -> None:
    assert load({}, {"ONCEBUS_CONFIG": "", "ONCEBUS_SHARDS": ""}, write(tmp_path, "shards = 3")).shards == 3


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("data", "/srv/bus", Path("/srv/bus")),
        ("data", Path("bus"), Path("bus")),
        ("host", "0.0.0.0", "0.0.0.0"),
        ("host", "::1", "::1"),
        ("http_port", "0", 0),
        ("http_port", 65535, 65535),
        ("tier", "premium", "Premium"),
        ("namespace", "my-bus-1", "my-bus-1"),
        ("master", "spark://head:7077", "spark://head:7077"),
        ("shards", "16", 16),
        ("inbox_limit", "500 MB", 500_000_000),
        ("inbox_limit", "2GiB", 2 * 1024**3),
        ("inbox_limit", 4096, 4096),
        ("drop_record", 0, 0),
        ("lag_limit", "2 minutes", 2 * MINUTE),
        ("heartbeat_limit", "PT5S", 5 * SECOND),
        ("heartbeat_limit", "90s", 90 * SECOND),
        ("longest_window", "P30D", 30 * DAY),
        ("longest_window", "365 days", 365 * DAY),
        ("log_format", "JSON", "json"),
        ("log_level", "Debug", "debug"),
        ("emulator", "true", True),
        ("emulator", "OFF", False),
        ("emulator", True, True),
    ],
)
def test_values_are_read_from_text_or_as_they_are(name: str, given: object, expected: object) -> None:
    assert getattr(load({name: given}, {}, None), name) == expected
    if isinstance(given, str):
        assert getattr(load({}, {variable(name): given}, None), name) == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("http_port", "x", "Not a port."),
        ("http_port", "-1", "Not a port."),
        ("amqp_port", "65536", "Not a port."),
        ("amqp_port", "5_000", "Not a port."),
        ("host", "a b", "Not a host."),
        ("host", "http://a", "Not a host."),
        ("tier", "Gold", "Not one of Basic, Standard, Premium."),
        ("namespace", "1bus", "Not a namespace name: 1 to 50 letters, digits and hyphens, starting with a letter."),
        ("master", "  ", "Not a text."),
        ("shards", "0", "Not a number from 1 to 1024."),
        ("shards", "1.5", "Not a number from 1 to 1024."),
        ("inbox_limit", "4 bananas", "Not a size: write it like '4 GiB', or in bytes."),
        ("inbox_limit", "0", "Not a size: write it like '4 GiB', or in bytes."),
        ("inbox_limit", "99999999999 TiB", "Not a size: write it like '4 GiB', or in bytes."),
        ("drop_record", "many", "Not a number from 0 to 10000000."),
        ("longest_window", "6 days", "Not a duration from 7 to 365 days."),
        ("longest_window", "366 days", "Not a duration from 7 to 365 days."),
        ("longest_window", "30", "Not a duration: write it like 30s, '30 seconds' or 'PT30S'."),
        ("lag_limit", "30", "Not a duration: write it like 30s, '30 seconds' or 'PT30S'."),
        ("heartbeat_limit", "-1 seconds", "Not a duration: write it like 30s, '30 seconds' or 'PT30S'."),
        ("log_format", "xml", "Not one of text, json."),
        ("log_level", "loud", "Not one of debug, info, warning, error."),
        ("emulator", "maybe", "Not true or false."),
        ("tls_cert", "cert.pem", "Give 'tls_key' too."),
        ("tls_key", "key.pem", "Give 'tls_cert' too."),
        ("http_port", "5672", "'amqp_port' is the same port. Set 'port' to it for a port that serves both."),
        ("amqp_port", "5300", "'http_port' is the same port. Set 'port' to it for a port that serves both."),
    ],
)
def test_the_error_for_a_bad_value_names_setting_source_and_value(
    name: str, value: str, why: str, tmp_path: Path
) -> None:
    def message(flags: dict[str, object], environment: dict[str, str]) -> str:
        with pytest.raises(SettingsError) as caught:
            load(flags, environment, None)
        return str(caught.value)

    assert message({}, {variable(name): value}) == (
        f"Setting '{name}' from the environment variable {variable(name)} has value {value!r}. {why}"
    )
    assert message({name: value}, {}) == (
        f"Setting '{name}' from the flag --{name.replace('_', '-')} has value {value!r}. {why}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http_port = 'x'", "Setting 'http_port' from the file '{file}' has value 'x'. Not a port."),
        ("http_port = true", "Setting 'http_port' from the file '{file}' has value True. Not a port."),
        ("http_port = 1.5", "Setting 'http_port' from the file '{file}' has value 1.5. Not a port."),
        ("emulator = 1", "Setting 'emulator' from the file '{file}' has value 1. Not true or false."),
        ("lag_limit = 30", "Setting 'lag_limit' from the file '{file}' has value 30. Not a duration: write it like "
         "30s, '30 seconds' or 'PT30S'."),
        ("data = 7", "Setting 'data' from the file '{file}' has value 7. Not a path."),
        ("data = ''", "Setting 'data' from the file '{file}' has value ''. Not a path."),
        ("htp_port = 1", "Setting 'htp_port' from the file '{file}' is not known. Did you mean 'http_port'?"),
        ("amqp-port = 1", "Setting 'amqp-port' from the file '{file}' is not known. Did you mean 'amqp_port'?"),
        ("[tls]\ncert = 'a'", "Setting 'tls' from the file '{file}' has value {{'cert': 'a'}}. Not true or false."),
        ("zzz = 1", "Setting 'zzz' from the file '{file}' is not known. There are " + ", ".join(NAMES) + "."),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load({}, {}, file)
    assert str(caught.value) == message.format(file=file)


def test_a_missing_file_or_invalid_toml_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read: No such file or directory\."):
        load({}, {}, tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="is not TOML: ") as caught:
        load({}, {}, write(tmp_path, "a = \n b"))
    assert "\n" not in str(caught.value)
    (tmp_path / "oncebus.toml").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="is not TOML: "):
        load({}, {}, tmp_path / "oncebus.toml")


def test_paths_in_the_file_start_at_its_folder(tmp_path: Path) -> None:
    settings = load({"config": "c.json"}, {}, write(tmp_path, "data = 'bus'\nkey_file = '/etc/keys'\n"))
    assert (settings.data, settings.key_path, settings.config) == (tmp_path / "bus", Path("/etc/keys"), Path("c.json"))


def test_an_overridden_value_is_not_checked_but_an_unknown_name_is(tmp_path: Path) -> None:
    assert load({"shards": 4}, {"ONCEBUS_SHARDS": "x"}, write(tmp_path, "shards = 'y'")).shards == 4
    with pytest.raises(
        SettingsError, match=r"Setting 'shard' from the command line is not known\. Did you mean 'shards'"
    ):
        load({"shard": 1}, {}, None)


def test_two_free_ports_are_not_the_same_port() -> None:
    assert load({"http_port": 0, "amqp_port": 0}, {}, None).http_port == 0


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().http_port = 1  # type: ignore[misc]


def test_the_table_in_the_docs_is_the_one_of_the_dataclass() -> None:
    assert list(settings_module.SETTINGS) == NAMES
    docs = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    assert table() in docs.read_text()
    assert [row.split("`")[1] for row in table().splitlines()[2:]] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_default_is_parsed_from_the_form_in_the_table(name: str) -> None:
    default = getattr(Settings(), name)
    if default is not None:
        shown = settings_module.SETTINGS[name].parser.shown(default)
        assert getattr(load({}, {variable(name): shown}, None), name) == default


@given(st.sampled_from(NAMES), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.integers())))
def test_any_value_is_taken_or_refused(name: str, value: object) -> None:
    try:
        load({name: value}, {}, None)
    except SettingsError as error:
        assert f"Setting '{name}' from the flag" in str(error)
