from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.ledger import StorageError
from oncebus.ledger.object_place import ObjectPlace, parse_place
from oncebus.ledger.storage import storage_at
from tests.object_stores import Server

AZURE = "abfss://box@account.dfs.core.windows.net/a/b"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://bucket/a/b", ObjectPlace("s3", "bucket", "a/b")),
        ("s3a://bucket/a%20b/", ObjectPlace("s3", "bucket", "a b")),
        ("s3://bucket", ObjectPlace("s3", "bucket", "")),
        ("s3://bucket/a?region=eu-west-1", ObjectPlace("s3", "bucket", "a", region="eu-west-1")),
        (
            "s3://bucket/a?endpoint_override=minio:9000&scheme=http",
            ObjectPlace("s3", "bucket", "a", endpoint="http://minio:9000"),
        ),
        ("s3://bucket/a?region=&endpoint_override=&scheme=", ObjectPlace("s3", "bucket", "a")),
        ("gs://bucket/a/b", ObjectPlace("gcs", "bucket", "a/b")),
        ("gcs://bucket/a", ObjectPlace("gcs", "bucket", "a")),
        (AZURE, ObjectPlace("azure", "box", "a/b", "account")),
        ("abfs://box@account.dfs.core.windows.net/a/b", ObjectPlace("azure", "box", "a/b", "account")),
        ("abfss://account.blob.core.windows.net/box/a/b", ObjectPlace("azure", "box", "a/b", "account")),
        ("abfss://account@box/a/b", ObjectPlace("azure", "box", "a/b", "account")),
    ],
)
def test_uris(uri: str, place: ObjectPlace) -> None:
    assert parse_place(uri, {}) == place
    assert storage_at(uri).location == uri


def test_the_rest_comes_from_the_environment() -> None:
    assert parse_place("abfs://box/a", {"AZURE_STORAGE_ACCOUNT_NAME": "mine"}).account == "mine"
    assert parse_place(AZURE, {"AZURE_STORAGE_ENDPOINT": "http://here"}).endpoint == "http://here"
    found = parse_place("s3://b/a", {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"})
    assert found.endpoint == "http://s3"


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        (
            "hdfs://node:9000/ledger",
            "HDFS has no rename that replaces a file in one step. Use a path (a mounted file",
        ),
        ("viewfs://node/ledger", "HDFS has no rename that replaces a file in one step. Use a path"),
        (
            "nope://here",
            "has the unknown scheme 'nope'. Use a path (a mounted file system works too), or s3://",
        ),
        ("s3://key:hush@bucket/a", "'s3://…@bucket/a' holds a secret. Leave it out and set AWS_ACCESS_KEY_ID and AWS_"),
        (
            "abfs://box:hush@account.dfs.core.windows.net/a",
            "holds a secret. Leave it out and set AZURE_STORAGE_ACCOUNT_",
        ),
        ("gs://anonymous@bucket/a", "names a user. Leave it out and set GOOGLE_APPLICATION_CREDENTIALS"),
        (
            "s3://bucket/a?tls_ca_file_path=x",
            "unknown option 'tls_ca_file_path'. Leave it out, and use environment variables",
        ),
        (
            "gs://bucket/a?scheme=http",
            "unknown option 'scheme'. Leave it out, and use environment variables like GOO",
        ),
        (
            "abfs://account@localhost:10000/box/a",
            "'abfs://account@localhost:10000/box/a' names a port. Leave it out and",
        ),
        (
            "abfs://box/a",
            "names no storage account: write it like abfss://container@account.dfs.core.windows.net/folder",
        ),
        ("s3://key:a/hush@bucket/a", "'s3://…@bucket/a' holds a secret."),
        ("hdfs://user:hush@node/a", "'hdfs://…@node/a' cannot be used"),
        (f"{AZURE}?sig=hush", f"'{AZURE}?…' has the unknown option 'sig'."),
        (
            "s3://bucket/a?aws_secret_access_key=hush",
            "'s3://bucket/a?…' has the unknown option 'aws_secret_access_key'",
        ),
        ("s3://bucket/a?region=x&hush", "'s3://bucket/a?…' has the unknown option after '?' or '#'."),
        ("s3://bucket/a#hush", "'s3://bucket/a?…' has the unknown option after '?' or '#'."),
        ("https://account.blob.core.windows.net/box?sig=hush", "net/box?…' has the unknown scheme 'https'."),
        ("abfs://box/a?sig=hush", "'abfs://box/a?…' names no storage account"),
        ("s3://key:hush@[bucket/a?sig=hush", "'s3://…@[bucket/a?…' is not a URI. Use a path"),
        ("s3:///a", "names no bucket: write it like s3://bucket/folder"),
        ("s3://hush@bucket/a@b", "'s3://…@bucket/a@b' names a user. Leave it out and set AWS_ACCESS_KEY_ID and AWS_"),
        ("gs://hush@bucket/a", "'gs://…@bucket/a' names a user."),
        ("hdfs://hush@node/a", "'hdfs://…@node/a' cannot be used"),
        ("s3://my bucket/a", "names 'my bucket', which is not a name of a bucket."),
        (
            "s3://bucket/a?endpoint_override=mi nio:9000",
            "'s3://bucket/a?…' cannot be used: endpoint_override is 'https://mi nio:9000', which is not a URL of",
        ),
    ],
)
def test_a_location_that_cannot_be_used_is_refused_with_a_suggestion(uri: str, error: str) -> None:
    with pytest.raises(StorageError) as raised:
        parse_place(uri, {})
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "nonsense",
        "http://",
        "localhost:9000",
        "http://[bad",
        "ftp://store",
        "http://a b",
        "http://a:99999",
        "http://ä",
        "http://1.2.3.999:80",
        "http://minio.9000",
    ],
)
@pytest.mark.parametrize(
    ("uri", "variable"),
    [("s3://b/a", "AWS_ENDPOINT_URL"), ("gs://b/a", "GOOGLE_BASE_URL"), (AZURE, "AZURE_STORAGE_ENDPOINT")],
)
def test_an_endpoint_that_is_no_url_is_refused(uri: str, variable: str, endpoint: str) -> None:
    """The client panics when it gets one: that would be many lines of Rust, and no exception of Python."""
    with pytest.raises(StorageError) as raised:
        parse_place(uri, {variable: endpoint})
    assert f"'{uri}' cannot be used: {variable} is '{endpoint}', which is not a URL of a store." in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["http://[::1]:9000", "https://s3.eu-west-1.example/a", "http://10.0.0.1:1/acc"])
def test_an_endpoint_may_be_an_address(endpoint: str) -> None:
    assert parse_place("s3://b/a", {"AWS_ENDPOINT_URL": endpoint}).endpoint == endpoint


@pytest.mark.parametrize(
    ("endpoint", "seen"),
    [
        ("http://key:hush@store", "http://…@store"),
        ("http://hush@store", "http://…@store"),
        ("http://store/?token=hush", "http://store/?…"),
        ("http://store#hush", "http://store?…"),
    ],
)
def test_an_endpoint_with_a_secret_is_refused(endpoint: str, seen: str) -> None:
    """The client would show it in its errors."""
    with pytest.raises(StorageError) as raised:
        parse_place("s3://b/a", {"AWS_ENDPOINT_URL": endpoint})
    assert f"AWS_ENDPOINT_URL is '{seen}', which is not a URL of a store." in str(raised.value)
    assert "hush" not in str(raised.value)


def test_a_region_that_is_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu west")
    with pytest.raises(StorageError, match="Region 'eu west' of bucket 'no-region' is not the name of a region"):
        storage_at("s3://no-region/a").names()


@pytest.fixture
def files(
    tmp_path: Path, object_servers: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], str]:
    """Return a function that writes ~/.aws, clears the environment, and returns the location of a ledger."""
    server = object_servers("s3")

    def write(credentials: str, config: str) -> str:
        (tmp_path / "credentials").write_text(credentials)
        (tmp_path / "config").write_text(config)
        return server.new_location()

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    return write


KEYS = "aws_access_key_id = a\naws_secret_access_key = b\n"


def test_keys_and_region_of_a_profile(files: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    location = files(f"[default]\n{KEYS}[other]\n{KEYS}", "[profile other]\nregion = eu-west-3\n")
    storage_at(location).publish("default", [b""])
    monkeypatch.setenv("AWS_PROFILE", "other")
    other = storage_at(location + "/other")
    other.publish("other", [b""])
    assert list(other.names()) == ["other"]
    assert other._client.config["region"] == "eu-west-3"  # type: ignore[attr-defined]
    monkeypatch.setenv("AWS_PROFILE", "third")
    with pytest.raises(StorageError, match="AWS profile 'third' has no keys"):
        storage_at(location + "/third").names()


def test_keys_that_a_program_provides(
    files: Callable[[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b"}
    (tmp_path / "program.py").write_text(f"print('''{json.dumps(keys)}''')")
    config = f"[default]\nregion = eu-west-3\ncredential_process = {sys.executable} {tmp_path / 'program.py'}\n"
    location = files("", config)
    storage = storage_at(location)
    storage.publish("one", [b"abc"])
    assert bytes(storage.read("one")) == b"abc"
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(StorageError, match="AWS profile 'default' needs boto3 for its 'credential_process': pip inst"):
        storage_at(location + "/more").names()
