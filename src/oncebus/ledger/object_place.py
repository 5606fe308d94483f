"""Parses the URI of a folder in an object store. `ObjectPlace.connect` creates a client for it.

    s3://bucket/path, s3a://…                             Amazon S3, or a store that speaks its protocol
    gs://bucket/path, gcs://…                             Google Cloud Storage
    abfss://container@account.dfs.core.windows.net/path   Azure Blob Storage and Data Lake, as Spark writes it
    abfss://account.blob.core.windows.net/container/path  the same
    abfss://account@container/path                        the same
    abfss://container/path                                the same, with the account in AZURE_STORAGE_ACCOUNT_NAME;
                                                          abfs and az mean the same as abfss

Credentials, endpoints and regions come from the same environment variables that the stores' own tools read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncebus.ledger.storage import StorageError, hide_secrets

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

_S3, _GCS, _AZURE = "s3", "gcs", "azure"
_STORES = {"s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE}
_USABLE = "Use a path (a mounted file system works too), or s3://, gs:// or abfss://."
_ENDPOINTS = {
    _S3: ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    _GCS: ("GOOGLE_BASE_URL",),
    _AZURE: ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_SECRETS = {
    _S3: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    _GCS: "GOOGLE_APPLICATION_CREDENTIALS",
    _AZURE: "AZURE_STORAGE_ACCOUNT_KEY",
}
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""A bucket or a region of S3, which become part of a URL. The client panics if the URL is not valid."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class StorePatience:
    """The time limits for a store, in seconds. `request` is for one request of at most a few megabytes."""

    connect: float = 5.0
    request: float = 30.0
    total: float = 60.0


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A folder of an object store: a bucket (Azure: container) and a path in it.

    `account` is for Azure; `region` and `endpoint` are for S3. They are None if neither the URI nor the environment
    sets them.
    """

    store: str
    bucket: str
    path: str
    account: str | None = None
    region: str | None = None
    endpoint: str | None = None

    @property
    def may_ignore_conditions(self) -> bool:
        """Return whether the store may ignore the condition of a conditional put, as some imitations of S3 do."""
        return self.store == _S3 and self.endpoint is not None

    def connect(self, patience: StorePatience) -> S3Store | GCSStore | AzureStore:
        """Return a client. Sends no request, except to find S3's region if it is not known."""
        from obstore import store as stores

        client: ClientConfig = {
            "connect_timeout": timedelta(seconds=patience.connect),
            "timeout": timedelta(seconds=patience.request),
            # A plain endpoint has been asked for by its name.
            "allow_http": (self.endpoint or "").startswith("http://"),
        }
        retry: RetryConfig = {
            "max_retries": 5,
            "retry_timeout": timedelta(seconds=patience.total),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
        }
        prefix = self.path or None
        if self.store == _AZURE:
            named = {"account_name": self.account} if self.account else {}
            return stores.AzureStore(self.bucket, prefix=prefix, client_options=client, retry_config=retry, **named)  # type: ignore[arg-type]
        if self.store == _GCS:
            return stores.GCSStore(self.bucket, prefix=prefix, client_options=client, retry_config=retry)
        from oncebus.ledger.aws import keys_of_profile, region_of

        region = self.region or region_of(self.bucket, self.endpoint)
        if not _NAME.fullmatch(region):
            raise StorageError(
                f"Region '{region}' of bucket '{self.bucket}' is not the name of a region. Set AWS_REGION."
            )
        placed = {"endpoint": self.endpoint} if self.endpoint else {}
        return stores.S3Store(
            self.bucket,
            prefix=prefix,
            region=region,
            client_options=client,
            retry_config=retry,
            credential_provider=keys_of_profile(),
            **placed,  # type: ignore[arg-type]
        )


def parse_place(uri: str, environment: Mapping[str, str] = os.environ) -> ObjectPlace:
    """Parse the URI of a folder. Raises `StorageError`, with a suggestion, for a URI that cannot be used."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise _unusable(uri, f"is not a URI. {_USABLE}") from None
    store = _STORES.get(parts.scheme)
    if parts.scheme in ("hdfs", "viewfs"):
        raise _unusable(uri, f"cannot be used: HDFS has no rename that replaces a file in one step. {_USABLE}")
    if store is None:
        raise _unusable(uri, f"has the unknown scheme '{parts.scheme}'. {_USABLE}")
    if parts.password or (":" in parts.netloc and "@" in parts.path):
        raise _unusable(uri, f"holds a secret. Leave it out and set {_SECRETS[store]}.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    path = unquote(parts.path).strip("/")
    source, endpoint = next(
        ((name, environment[name]) for name in _ENDPOINTS[store] if environment.get(name)), ("", None)
    )
    if store == _AZURE:
        place = _azure(uri, parts, path, endpoint, environment)
    elif parts.username is not None:
        raise _unusable(uri, f"names a user. Leave it out and set {_SECRETS[store]}.")
    elif store == _GCS:
        place = ObjectPlace(_GCS, parts.netloc, path, endpoint=endpoint)
    else:
        override, scheme = options.pop("endpoint_override", ""), options.pop("scheme", "") or "https"
        if override:
            source, endpoint = "endpoint_override", override if "://" in override else f"{scheme}://{override}"
        place = ObjectPlace(_S3, parts.netloc, path, region=options.pop("region", "") or None, endpoint=endpoint)
    if options or parts.fragment:
        # An option without a value may be a secret itself.
        unknown = next((f"'{name}'" for name, value in options.items() if value), "after '?' or '#'")
        raise _unusable(
            uri,
            f"has the unknown option {unknown}. Leave it out, and use environment "
            f"variables like {_ENDPOINTS[store][0]}.",
        )
    if not place.bucket:
        raise _unusable(uri, f"names no bucket: write it like {parts.scheme}://bucket/folder.")
    if store == _S3 and not _NAME.fullmatch(place.bucket):
        raise _unusable(uri, f"names '{place.bucket}', which is not a name of a bucket.")
    if place.endpoint is not None and not _is_endpoint(place.endpoint):
        raise _unusable(
            uri,
            f"cannot be used: {source} is '{hide_secrets(place.endpoint)}', which is not a URL "
            "of a store. Write it like https://store.example:9000.",
        )
    return place


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    # The client shows the whole URL in its errors, so it must not hold a secret.
    is_bare = "@" not in parts.netloc and not parts.query and not parts.fragment
    return is_plain and is_bare and parts.scheme in ("http", "https") and _is_host(host) and port != 0


def _is_host(host: str) -> bool:
    if host.rpartition(".")[2].isdigit():
        # The client takes it for an address, and panics if it is not one.
        try:
            ip_address(host)
        except ValueError:
            return False
    return bool(_HOST.fullmatch(host))


def _azure(
    uri: str, parts: SplitResult, path: str, endpoint: str | None, environment: Mapping[str, str]
) -> ObjectPlace:
    host, user = parts.hostname or "", parts.username
    if ":" in parts.netloc.rpartition("@")[2]:
        raise _unusable(uri, f"names a port. Leave it out and set {_ENDPOINTS[_AZURE][0]}.")
    if "." in host:
        account = host.partition(".")[0]
        if user is not None:
            return ObjectPlace(_AZURE, user, path, account, endpoint=endpoint)
        container, _, rest = path.partition("/")
        return ObjectPlace(_AZURE, container, rest, account, endpoint=endpoint)
    account_name = user or environment.get("AZURE_STORAGE_ACCOUNT_NAME")
    if account_name is None:
        raise _unusable(
            uri,
            "names no storage account: write it like "
            "abfss://container@account.dfs.core.windows.net/folder, or set AZURE_STORAGE_ACCOUNT_NAME.",
        )
    return ObjectPlace(_AZURE, host, path, account_name, endpoint=endpoint)


def _unusable(uri: str, problem: str) -> StorageError:
    return StorageError(f"Ledger location '{hide_secrets(uri)}' {problem}")
