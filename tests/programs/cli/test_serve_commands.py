"""Tests the commands that run or reach a broker as far as they get without one: their errors and their output."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncebus.broker.clock import wall_time
from oncebus.model.access import ROOT_RULE, KeyFile, Operation, Right
from oncebus.model.access.authorization import verify
from oncebus.programs.cli import COMMANDS, main
from oncebus.programs.serve.addresses import ClientAddress, write_addresses
from oncebus.programs.serve.service import environment
from oncebus.programs.serve.supervisor import Supervisor
from oncebus.values import logs
from oncebus.values.durations import HOUR, SECOND
from oncebus.values.settings import Settings, load

OF_THE_BROKER = ["serve", "gateway", "pipeline", "duplicates", "connection-string", "token"]


def run(*words: str | Path, **environment: str) -> Result:
    cleared: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("ONCEBUS_"))
    return CliRunner(env=cleared | environment).invoke(main, list(map(str, words)))


def refusal(*words: str | Path, **environment: str) -> str:
    """Run a command that must fail, and return the one line of its error."""
    result = run(*words, **environment)
    assert result.exit_code == 1, result.output
    assert result.output.startswith("oncebus: ")
    assert result.output.count("\n") == 1
    return result.output.removeprefix("oncebus: ").rstrip("\n")


@pytest.mark.parametrize("name", OF_THE_BROKER)
def test_every_command_has_help_with_an_example_that_can_be_parsed(name: str) -> None:
    text = " ".join(run(name, "--help").output.split())
    example = text.rpartition("Example: ")[2]
    assert f"oncebus {name}" in example
    assert shlex.split(example)


@pytest.mark.parametrize("name", OF_THE_BROKER)
def test_every_command_is_in_the_docs_and_in_the_list(name: str) -> None:
    docs = Path(__file__).parents[3] / "docs" / "reference" / "serve.md"
    assert f"`oncebus {name}" in docs.read_text()
    assert name in COMMANDS
    assert f"  {name} " in run("--help").output


@pytest.mark.parametrize("name", ["serve", "gateway", "pipeline"])
def test_a_bad_setting_is_named_with_its_source_and_value(name: str, tmp_path: Path) -> None:
    assert refusal(name, "--shards", "many") == (
        "Setting 'shards' from the flag --shards has value 'many'. Not a number from 1 to 1024."
    )
    assert "from the environment variable ONCEBUS_SHARDS has value 'few'" in refusal(name, ONCEBUS_SHARDS="few")
    file = tmp_path / "broker.toml"
    file.write_text("shard = 2\n")
    assert refusal(name, "--settings", file) == (
        f"Setting 'shard' from the file '{file}' is not known. Did you mean 'shards'?"
    )


def test_an_unknown_option_is_a_usage_error() -> None:
    assert run("pipeline", "--http-port", "1").exit_code == 2


@pytest.mark.parametrize("name", ["serve", "gateway"])
def test_a_bad_configuration_file_is_refused_before_anything_starts(name: str, tmp_path: Path) -> None:
    said = refusal(name, "--data", tmp_path / "data", "--http-port", "0", "--config", tmp_path / "Config.json")
    assert said == f"Configuration file '{tmp_path}/Config.json': It cannot be read: No such file or directory."


@pytest.mark.parametrize("name", ["serve", "gateway"])
def test_a_bad_entities_file_is_refused_before_anything_starts(name: str, tmp_path: Path) -> None:
    said = refusal(name, "--data", tmp_path / "data", "--http-port", "0", "--entities", tmp_path / "none.json")
    assert said == f"Entities file '{tmp_path}/none.json': It cannot be read: No such file or directory."


def test_serve_says_when_java_is_missing(tmp_path: Path) -> None:
    said = refusal("serve", "--data", tmp_path / "data", PATH=str(tmp_path), JAVA_HOME="")
    assert said.startswith("Spark needs Java 17 or later, but no 'java' is on the PATH.")
    said = refusal("serve", "--data", tmp_path / "data", JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is '{tmp_path}'" in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["serve", "gateway", "pipeline"])
def test_a_folder_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refusal(name, "--data", tmp_path / "file" / "data")
    assert said == f"Data folder '{tmp_path}/file/data' cannot be written: Not a directory."


@pytest.mark.parametrize("flag", ["--http-port", "--amqp-port", "--amqps-port"])
def test_serve_says_when_a_port_is_in_use_and_which_flag_changes_it(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {"--http-port": "0", flag: str(port)}
        words = [word for pair in given.items() for word in pair] + (["--tls"] if flag == "--amqps-port" else [])
        said = refusal("serve", "--data", tmp_path / "data", *words)
    reason = f"the port is in use. Stop the program that uses it, or choose another port with {flag}."
    assert said == f"Cannot listen at 127.0.0.1, port {port}: {reason}"


@pytest.mark.parametrize("words", [["--amqp-port", "0"], ["--tls", "--amqps-port", "0"]], ids=["plain", "TLS"])
def test_serve_prints_the_connection_string_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    async def stopped_at_once(self: Supervisor) -> int:
        return 0

    monkeypatch.setattr(Supervisor, "run", stopped_at_once)
    given: list[str | Path] = ["serve", "--data", tmp_path, "--http-port", "0", *words]
    (connection,) = run(*given, "--print-connection-string").stdout.splitlines()
    assert re.match(r"Endpoint=sb://localhost:[1-9]\d*/?;", connection)
    assert connection.endswith(";UseDevelopmentEmulator=true") is (words[0] != "--tls")
    # What is not a terminal may be a log that others read.
    key = KeyFile(tmp_path / "keys.json").rules()[0].primary_key
    assert key in connection
    (hint,) = run(*given).stdout.splitlines()
    assert hint == f"The connection string: oncebus connection-string --data {tmp_path}"
    # A line of a JSON log is JSON, also this one.
    (line,) = run(*given, "--log-format", "json").stdout.splitlines()
    assert json.loads(line)["message"] == hint
    monkeypatch.setattr("oncebus.programs.cli.serve.is_seen_by_a_person", lambda: True)
    (again,) = run(*given).stdout.splitlines()
    assert key in again


def test_connection_string_names_the_running_broker_or_the_settings(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    root, other = keys.rules()[0], keys.put("listens", [Right.LISTEN])
    shown = run("connection-string", "--data", tmp_path).stdout.strip()
    end = "UseDevelopmentEmulator=true"
    assert shown == (
        f"Endpoint=sb://localhost;SharedAccessKeyName={root.name};SharedAccessKey={root.primary_key};{end}"
    )
    for address, start in (
        (ClientAddress("localhost", 40001, False), "Endpoint=sb://localhost:40001;"),
        (ClientAddress("bus.example.org", None, True), "Endpoint=sb://bus.example.org/;"),
    ):
        write_addresses(tmp_path, "http://127.0.0.1:5300", address)
        shown = run("connection-string", "--data", tmp_path, "--rule", "listens").stdout.strip()
        assert shown.startswith(f"{start}SharedAccessKeyName=listens;SharedAccessKey={other.primary_key}")
        assert shown.endswith(end) is not address.is_encrypted


def test_an_error_is_json_where_the_log_is(tmp_path: Path) -> None:
    (tmp_path / "entities.json").write_text("{")
    words: list[str | Path] = [
        "serve",
        "--data",
        tmp_path,
        "--log-format",
        "json",
        "--entities",
        tmp_path / "entities.json",
    ]
    result = run(*words)
    logs.configure("text", "INFO")
    refused = json.loads(result.stderr)
    assert (result.exit_code, refused["level"], refused["message"].startswith("oncebus: ")) == (1, "ERROR", True)


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_an_error_in_the_settings_is_json_too(by: str) -> None:
    if by == "flag":
        result = run("gateway", "--log-format", "json", "--shards", "none")
    else:
        result = run("gateway", "--shards", "none", ONCEBUS_LOG_FORMAT="JSON")
    logs.configure("text", "INFO")
    refused = json.loads(result.stderr)
    assert (refused["level"], "'none'" in refused["message"]) == ("ERROR", True)


def test_serve_refuses_a_data_folder_that_another_broker_uses(tmp_path: Path) -> None:
    with (tmp_path / "serve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = refusal("serve", "--data", tmp_path, "--http-port", "0", "--amqp-port", "0")
    assert said == f"Another broker uses data folder '{tmp_path}'. Stop it first, or choose another folder with --data."


def test_no_program_delays_a_stop_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graces: dict[str, float] = {}

    async def stopped_at_once(self: Supervisor) -> int:
        graces.update({program.name: program.grace for program in self._programs})
        return 0

    monkeypatch.setattr(Supervisor, "run", stopped_at_once)
    run("serve", "--data", tmp_path, "--http-port", "0", "--amqp-port", "0")
    assert graces == {"gateway": 4.0, "pipeline": 4.0}


def test_the_processes_of_serve_get_its_settings(tmp_path: Path) -> None:
    settings = Settings(
        data=tmp_path,
        http_port=1,
        amqp_port=2,
        lag_limit=1_500_000,
        longest_window=30 * 86_400_000_000,
        emulator=True,
        key_file=tmp_path / "k",
        tier="Premium",
    )
    assert load({}, environment(settings), None) == settings


def test_an_overridden_variable_does_not_reach_the_processes_of_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBUS_KEY_FILE", "elsewhere")
    assert load({}, environment(Settings()), None).key_file is None


def test_a_token_is_valid_for_its_entity_under_its_rule_until_it_expires(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    keys.add("listener", [Right.LISTEN])
    made = run("token", "--data", tmp_path, "--entity", "orders", "--rule", "listener", "--expires", "2h")
    assert made.exit_code == 0, made.output
    grant = verify(made.output.strip(), now=wall_time(), namespace_rules=keys.rules(), rules_of=lambda path: ())
    grant.require(Operation.RECEIVE, "orders", now=wall_time())
    assert grant.rule == "listener"
    assert abs(grant.expires - wall_time() - 2 * HOUR) < 60 * SECOND
    assert not grant.scope.covers(("other",))


def test_a_token_needs_an_existing_rule_and_a_positive_duration(tmp_path: Path) -> None:
    KeyFile(tmp_path / "keys.json").create()
    assert "Authorization rule 'nobody' is not in" in refusal("token", "--data", tmp_path, "--rule", "nobody")
    assert "--expires has value '0 seconds'" in refusal("token", "--data", tmp_path, "--expires", "0 seconds")
    said = refusal("token", "--data", tmp_path, "--expires", "soon")
    assert said.startswith("Option --expires 'soon' is not a duration. Write it like 90s, 10m, ")
    said = refusal("token", "--data", tmp_path, "--expires", "P1Y")
    assert said == "Option --expires 'P1Y' has years or months, which have no fixed length."
    assert ROOT_RULE in run("token", "--data", tmp_path).output


@pytest.mark.parametrize("words", [["token"], ["queue", "list"], ["duplicates", "orders"]])
def test_a_command_that_finds_no_keys_says_how_to_name_the_data_folder(tmp_path: Path, words: list[str]) -> None:
    missing = f"Key file '{tmp_path}/keys.json' cannot be read: No such file or directory."
    hint = "Give the broker's data folder with --data, or its keys with --key-file."
    assert refusal(*words, "--data", tmp_path) == f"{missing} {hint}"


def test_the_error_for_unusable_keys_does_not_suggest_another_folder(tmp_path: Path) -> None:
    (tmp_path / "keys.json").touch(mode=0o644)
    said = refusal("token", "--data", tmp_path)
    assert "is open to other users" in said
    assert "--data" not in said


class _Odd(BaseHTTPRequestHandler):
    """A web server that is not a broker."""

    def do_GET(self) -> None:
        content = b"<html>hello</html>" if "text" in self.path else b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    """Run a web server that is not a broker, and yield its URL."""
    with HTTPServer(("127.0.0.1", 0), _Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_duplicates_says_when_there_is_no_broker(tmp_path: Path, other_server: str) -> None:
    KeyFile(tmp_path / "keys.json").create()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = refusal("duplicates", "orders", "--data", tmp_path, "--url", f"http://127.0.0.1:{port}")
    assert said == f"The broker at http://127.0.0.1:{port} cannot be reached: Connection refused."
    for entity in ("text", "json"):
        said = refusal("duplicates", entity, "--data", tmp_path, "--url", other_server)
        assert said.startswith(f"The server at {other_server} is not an Oncebus broker")
    assert "unknown url type" in refusal("duplicates", "orders", "--data", tmp_path, "--url", "ftp-like")
