"""Finds the AWS settings that the S3 client does not read by itself: profiles in `~/.aws`, and the region of a bucket.

The client itself handles variables like AWS_ACCESS_KEY_ID, web identities, and the roles of containers and machines.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from oncebus.ledger.storage import StorageError

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3CredentialProvider

_BY_BOTO = ("credential_process", "role_arn", "sso_session", "sso_start_url", "web_identity_token_file")
_SELF_SUFFICIENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_FRESH = timedelta(minutes=5)
"""Read the profile again after this time: its keys may have been rotated."""


def keys_of_profile() -> S3CredentialProvider | None:
    """Return a function that provides the keys of the current profile; None if the client finds keys by itself.

    Profiles with a role, single sign-on or a credential process need boto3.
    """
    if any(os.environ.get(name) for name in _SELF_SUFFICIENT):
        return None
    name, values = _profile()
    if "aws_access_key_id" in values:
        return _reader()
    needs = next((key for key in _BY_BOTO if key in values), None)
    if needs is None:
        if name != "default":
            raise StorageError(f"AWS profile '{name}' has no keys. Add them to ~/.aws/credentials or set AWS_PROFILE.")
        return None
    try:
        import boto3  # type: ignore[import-untyped,import-not-found,unused-ignore]
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise StorageError(
            f"AWS profile '{name}' needs boto3 for its '{needs}': pip install boto3, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=name))


def region_of(bucket: str, endpoint: str | None) -> str:
    """Return the region that the environment or the profile sets.

    Without one, ask Amazon for the region of the bucket.
    """
    given = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _profile()[1].get("region")
    if given or endpoint:
        return given or "us-east-1"
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except OSError as error:
        raise StorageError(
            f"The region of bucket '{bucket}' cannot be found: {' '.join(str(error).split())}. Set AWS_REGION."
        ) from error


def _reader() -> Callable[[], S3Credential]:
    def read() -> S3Credential:
        values = _profile()[1]
        return {
            "access_key_id": values["aws_access_key_id"],
            "secret_access_key": values["aws_secret_access_key"],
            "token": values.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _FRESH,
        }

    return read


def _profile() -> tuple[str, dict[str, str]]:
    """Return the name of the current profile, and its values from the files `config` and `credentials`."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    values: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(os.environ.get(variable) or Path("~/.aws", file)).expanduser()
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError) as error:
            raise StorageError(f"'{path}' cannot be read: {' '.join(str(error).split())}") from error
        if parser.has_section(section):
            values |= dict(parser.items(section))
    return name, values
