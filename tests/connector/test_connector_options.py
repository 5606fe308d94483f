"""Options: defaults, clear errors, and no secret in any text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncebus.connector.endpoints import Access, access_from
from oncebus.connector.errors import BadOption
from oncebus.connector.options import OPTIONS, Entity, peek_options, sink_options, stream_options

SECRET = "c2VjcmV0"
STRING = f"Endpoint=sb://localhost:5672/;SharedAccessKeyName=root;SharedAccessKey={SECRET};UseDevelopmentEmulator=true"
GIVEN = {"connection_string": STRING, "queue": "orders"}


def test_defaults_of_a_stream() -> None:
    options = stream_options({**GIVEN, "spool": "/spool"})
    assert options.entity == Entity("orders")
    assert (options.max_rows, options.max_bytes, options.receivers) == (10_000, 64 << 20, 1)
    assert (options.wait, options.retry_timeout) == (1.0, 300.0)
    assert (options.deletes, options.sessions) == (False, False)


def test_every_option_has_a_unique_name_in_lower_case() -> None:
    names = [option.name for option in OPTIONS]
    assert names == [name.lower() for name in names]
    assert len(set(names)) == len(names)


def test_spark_s_own_options_are_ignored() -> None:
    sink_options({**GIVEN, "checkpointLocation": "/c", "asyncProgressTrackingEnabled": "true"})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"quue": "a"}, "Unknown option 'quue'. There are: "),
        ({"spool": "/a"}, "Option 'spool' is for readStream, not for write."),
        ({"queue": " "}, "Option 'queue' is empty."),
        ({"topic": "a"}, "Give either the option 'queue' or the option 'topic'."),
        ({"retry_timeout": "soon"}, "Option Retry_timeout 'soon' is not a duration."),
        ({"retry_timeout": "-1 second"}, "must be longer than zero"),
        ({"id_prefix": "x" * 65}, "is longer than 64 characters"),
        ({"detection": "maybe"}, "Option 'detection' 'maybe' must be one of: require, ignore."),
        ({"connection_string_env": "A"}, "there is connection_string and connection_string_env"),
        ({"credential": "DefaultAzureCredential"}, "'namespace' and 'credential' belong together"),
    ],
)
def test_wrong_options_of_a_sink(given: dict[str, str], error: str) -> None:
    with pytest.raises(BadOption) as raised:
        sink_options({**GIVEN, **given})
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "Option 'spool' is missing"),
        ({"spool": "s3://bucket/a"}, "Option 'spool' 's3://bucket/a' must be the path of a folder, not an address."),
        ({"spool": "dbfs:/a"}, "Option 'spool' 'dbfs:/a' must be the path of a folder, not an address."),
        ({"spool": "/a", "max_rows": "0"}, "Option 'max_rows' 0 must be between 1 and 1000000."),
        ({"spool": "/a", "max_rows": "ten"}, "Option 'max_rows' 'ten' must be a whole number."),
        ({"spool": "/a", "max_bytes": "2 TB"}, "Option 'max_bytes' '2 TB' must be at most"),
        ({"spool": "/a", "receivers": "65"}, "Option 'receivers' 65 must be between 1 and 64."),
        ({"spool": "/a", "mode": "peek"}, "Option 'mode' 'peek' must be one of: peek_lock, receive_and_delete."),
        ({"spool": "/a", "mode": "receive_and_delete", "sessions": "true"}, "cannot be combined with sessions"),
        ({"spool": "/a", "sub_queue": "dlq"}, "must be one of: dead_letter, transfer_dead_letter."),
        (
            {"spool": "/a", "sub_queue": "dead_letter", "sessions": "true"},
            "Option 'sessions' cannot be true for the dead-letter queue of queue 'orders': it has no sessions.",
        ),
        ({"spool": "/a", "wait": "1 hour"}, "must be at most"),
        ({"spool": "/a", "subscription": "s"}, "Option 'subscription' needs the option 'topic'"),
    ],
)
def test_wrong_options_of_a_stream(given: dict[str, str], error: str) -> None:
    with pytest.raises(BadOption) as raised:
        stream_options({**GIVEN, **given})
    assert error in str(raised.value)


def test_entities_of_a_topic() -> None:
    given = {"connection_string": STRING, "topic": "t"}
    assert sink_options(given).entity == Entity("t", is_topic=True)
    with pytest.raises(BadOption, match="Option 'subscription' is missing: the subscription of topic 't'"):
        peek_options(given)
    options = peek_options({**given, "subscription": "s", "sub_queue": "dead_letter"})
    assert str(options.entity) == "the dead-letter queue of subscription 't/s'"


def test_no_repr_shows_the_connection_string() -> None:
    assert SECRET not in repr(sink_options(GIVEN))
    assert SECRET not in str(access_from(GIVEN))


@pytest.mark.parametrize("option", ["connection_string_env", "connection_string_file", "namespace"])
def test_a_connection_string_in_the_wrong_option(option: str) -> None:
    with pytest.raises(BadOption) as raised:
        sink_options({option: STRING, "queue": "orders"})
    assert (
        str(raised.value) == f"Option '{option}' holds a connection string itself: use the option 'connection_string'."
    )


def test_no_case_of_letters_shows_a_connection_string_in_the_wrong_option() -> None:
    with pytest.raises(BadOption, match=r"^Option 'connection_string_env' holds a connection string itself"):
        access_from({"connection_string_env": STRING.lower()})
    path = "/etc/SharedAccessKeys/cs"
    assert access_from({"connection_string_file": path}) == Access(file=path)


def test_the_string_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUS", STRING + "\n")
    assert Access(variable="BUS").host == "localhost:5672"
    with pytest.raises(BadOption, match=r"The environment variable 'NONE' .* is not set"):
        Access(variable="NONE").resolve("a")
    file = tmp_path / "string"
    file.write_text(STRING + "\n")
    assert Access(file=str(file)).resolve("a") == Access(connection_string=STRING)


def test_a_file_that_holds_no_connection_string(tmp_path: Path) -> None:
    pipe, empty, binary, endless = (tmp_path / name for name in ("pipe", "empty", "binary", "endless"))
    os.mkfifo(pipe)
    empty.write_text("\n")
    binary.write_bytes(b"\xff")
    endless.write_text(STRING * 1000)
    reasons = {
        "/nowhere": "No such file or directory",
        str(tmp_path): "it is not a file",
        # To open it would wait for ever.
        str(pipe): "it is not a file",
        str(empty): "it is empty",
        str(binary): "it is not a text file",
        str(endless): "it is longer than a connection string",
    }
    for path, reason in reasons.items():
        with pytest.raises(BadOption) as raised:
            Access(file=path).resolve("a")
        assert str(raised.value) == f"Cannot read {path!r} (option 'connection_string_file'): {reason}."


@pytest.mark.parametrize("string", ["garbage", f"SharedAccessKey={SECRET}", f"Endpoint=;SharedAccessKey={SECRET}"])
def test_a_connection_string_without_an_endpoint(string: str) -> None:
    with pytest.raises(BadOption) as raised:
        Access(connection_string=string).resolve("orders")
    assert str(raised.value) == "The connection string has no part 'Endpoint=sb://…'."


def test_a_connection_string_of_another_entity() -> None:
    access = Access(connection_string=f"{STRING};EntityPath=orders")
    assert access.resolve("orders") == access
    with pytest.raises(BadOption) as raised:
        access.resolve("other")
    assert str(raised.value) == "The connection string is for 'orders' (its part EntityPath), not for 'other'."


def test_white_space_around_a_connection_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    string = f"{STRING};EntityPath=orders"
    given, file = f" {string}\n", tmp_path / "string"
    monkeypatch.setenv("BUS", given)
    file.write_text(given)
    for access in (Access(connection_string=given), Access(variable="BUS"), Access(file=str(file))):
        assert access.resolve("orders") == Access(connection_string=string)


@pytest.mark.parametrize("between", ["", " ", "\n"])
def test_a_connection_string_that_lacks_a_semicolon(between: str) -> None:
    """The part before it ends with the key, so no error shows it."""
    endpoint, key = "Endpoint=sb://localhost", f"{between}SharedAccessKey={SECRET}"
    for part, string in (("EntityPath", f"{endpoint};EntityPath=orders{key}"), ("Endpoint", endpoint + key)):
        with pytest.raises(BadOption) as raised:
            Access(connection_string=string).resolve("orders")
        assert str(raised.value) == f"The part {part} of the connection string contains '='. Is a ';' missing?"


def test_a_connection_string_without_a_key() -> None:
    with pytest.raises(BadOption, match="The connection string is not usable: "):
        Access(connection_string="Endpoint=sb://localhost/").client()


def test_a_credential_without_its_package_or_class() -> None:
    access = Access(namespace="n.servicebus.windows.net", credential="Nothing")
    with pytest.raises(BadOption, match=r"needs the package azure-identity|is not a credential class"):
        access.client()


def test_a_credential_that_needs_arguments() -> None:
    """As ClientSecretCredential does. The class of this test is real too, and cannot be made at all."""
    with pytest.raises(BadOption, match=r"'TokenCredential' cannot be used without arguments: \w"):
        Access(namespace="n", credential="TokenCredential").token_credential("azure.core.credentials")
