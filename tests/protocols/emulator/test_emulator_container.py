"""The contract of the emulator's container image, without an image: variables, file, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.model.entities import Catalogue
from oncebus.programs.cli.container import words_of
from oncebus.programs.serve.service import ready_lines
from oncebus.protocols.emulator.config import WHAT, read_config
from oncebus.protocols.emulator.container import BadVariable, ContainerStart, start_of
from oncebus.protocols.management.entity_file import EntityFile
from oncebus.values.settings import Settings, load

OURS = Path("/share/Config.json")
MOUNTED = Path("/mounted/Config.json")
IMAGE = Path(__file__).parents[3] / "deploy" / "image"
EMULATOR = {"ONCEBUS_EMULATOR": "true", "ONCEBUS_INSECURE_EMULATOR": "true"}


def start(*arguments: str, config: Path | None = None, **environment: str) -> ContainerStart:
    return start_of(arguments, environment, config=config, default_config=OURS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["serve"]),
        (("--tls", "--port", "5671"), ["serve", "--tls", "--port", "5671"]),
        (("serve", "--tls"), ["serve", "--tls"]),
        (("gateway",), ["gateway"]),
        (("pipeline", "--master", "local[2]"), ["pipeline", "--master", "local[2]"]),
        (("--version",), ["--version"]),
        (("--help",), ["--help"]),
    ],
)
def test_without_a_command_the_container_serves(arguments: tuple[str, ...], words: list[str]) -> None:
    assert start(*arguments) == ContainerStart(words, {}, [])


@pytest.mark.parametrize("value", ["Y", "y", "yes", "true", "1"])
def test_who_accepts_the_licence_gets_the_emulator(value: str) -> None:
    assert start(ACCEPT_EULA=value, config=MOUNTED).variables == {**EMULATOR, "ONCEBUS_CONFIG": str(MOUNTED)}


def test_without_a_file_the_emulator_has_its_default_entities() -> None:
    assert start(ACCEPT_EULA="Y").variables == {**EMULATOR, "ONCEBUS_CONFIG": str(OURS)}


def test_without_the_licence_the_file_counts_and_the_well_known_key_does_not() -> None:
    assert start(config=MOUNTED).variables == {"ONCEBUS_CONFIG": str(MOUNTED)}


def test_a_variable_has_the_content_of_the_file() -> None:
    assert start(CONFIG_JSON="{}").variables == {"ONCEBUS_CONFIG_JSON": "{}"}
    assert start(ACCEPT_EULA="Y", CONFIG_JSON="{}").variables == {**EMULATOR, "ONCEBUS_CONFIG_JSON": "{}"}


def test_a_file_and_a_variable_together_are_refused() -> None:
    with pytest.raises(BadVariable, match=r"both a file at .*Config\.json and an environment variable CONFIG_JSON"):
        start(CONFIG_JSON="{}", config=MOUNTED)


def test_other_commands_are_left_alone() -> None:
    environment = {"ACCEPT_EULA": "Y", "SQL_SERVER": "db", "EMULATOR_HTTP_PORT": "80"}
    assert start("pipeline", config=MOUNTED, **environment) == ContainerStart(["pipeline"], {}, [])


def test_settings_of_the_user_win() -> None:
    assert start(ACCEPT_EULA="Y", ONCEBUS_CONFIG="/mine", ONCEBUS_EMULATOR="false").variables == {
        "ONCEBUS_INSECURE_EMULATOR": "true"
    }
    given = start("--config=/mine", "--http-port", "80", ACCEPT_EULA="Y", EMULATOR_HTTP_PORT="5301")
    assert given.variables == EMULATOR


def test_the_http_port_is_the_emulators() -> None:
    assert start(EMULATOR_HTTP_PORT="5301").variables == {"ONCEBUS_HTTP_PORT": "5301"}


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1", "5300 ", "٣"])
def test_a_bad_port_is_named(port: str) -> None:
    with pytest.raises(BadVariable) as caught:
        start(EMULATOR_HTTP_PORT=port)
    assert str(caught.value) == f"Environment variable EMULATOR_HTTP_PORT has value '{port}'. Not a port."


def test_a_licence_that_is_not_accepted_is_an_error() -> None:
    with pytest.raises(BadVariable, match=r"Environment variable ACCEPT_EULA has value 'N'\. Set it to Y to start"):
        start(ACCEPT_EULA="N")


def test_variables_for_the_database_have_no_effect_and_their_values_are_not_shown() -> None:
    given = start(SQL_SERVER="db", MSSQL_SA_PASSWORD="secret", SQL_WAIT_INTERVAL="15")
    assert given.variables == {}
    assert given.notes == [
        "SQL_SERVER, MSSQL_SA_PASSWORD, SQL_WAIT_INTERVAL have no effect: Oncebus needs no SQL Server."
    ]
    assert start(SQL_SERVER="db").notes == ["SQL_SERVER has no effect: Oncebus needs no SQL Server."]


def test_the_entry_point_sets_the_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "Config.json"
    environment = {"ACCEPT_EULA": "Y", "SQL_SERVER": "db", "ONCEBUS_HOST": "0.0.0.0"}
    assert words_of([], environment, config) == ["serve"]
    assert environment["ONCEBUS_CONFIG"].endswith("/share/oncebus/Config.json")
    assert capsys.readouterr().err == "oncebus: SQL_SERVER has no effect: Oncebus needs no SQL Server.\n"
    config.write_text("{}")
    environment = {"ACCEPT_EULA": "Y", "ONCEBUS_HOST": "0.0.0.0"}
    words_of([], environment, config)
    settings = load({}, environment, None)
    assert (settings.config, settings.emulator, settings.host) == (config, True, "0.0.0.0")


def test_the_images_own_configuration_is_good() -> None:
    file = EntityFile.read(IMAGE / "Config.json", WHAT, read_config)
    catalogue = file.added_to(Catalogue(), 0)
    assert file.warnings == ()
    assert catalogue.find("queue.1") is not None
    names = [catalogue.subscription("topic.1", f"subscription.{number}").name for number in (1, 2, 3)]
    assert names == ["subscription.1", "subscription.2", "subscription.3"]


def test_a_file_may_have_trailing_commas(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a,]",}, /* last */ ], },],}, }')
    with pytest.raises(Exception, match="a,]"):
        EntityFile.read(path, WHAT, read_config).added_to(Catalogue(), 0)
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a",}, /* last */ ], },],}, }')
    assert EntityFile.read(path, WHAT, read_config).added_to(Catalogue(), 0).find("a") is not None


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", '{"a": 1,,}', ","])
def test_a_comma_without_an_item_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(text)
    with pytest.raises(Exception, match="It is not JSON: line 1, column"):
        EntityFile.read(path, WHAT, read_config)


def test_the_emulators_line_is_printed_when_messages_flow() -> None:
    url = "http://127.0.0.1:5300"
    assert ready_lines(url, Settings(emulator=True)).splitlines() == [
        f"Oncebus is ready: {url}",
        "Emulator Service is Successfully Up!",
    ]
    assert ready_lines(url, Settings()) == f"Oncebus is ready: {url}"
