"""Checks at the start of a write that the entity detects duplicates, without which a repeated task sends twice.

The answer comes from the management API of the namespace (Atom over HTTP), because AMQP does not tell. It needs the
right Manage. Without that right, without a token, or if the API cannot be reached, the check logs a warning and lets
the write go on.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from dataclasses import replace
from functools import lru_cache
from urllib.parse import quote, quote_plus, urlsplit
from xml.etree import ElementTree

import httpx
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import OperationTimeoutError

from oncebus.connector.attempts import call_in_time, resolve_access
from oncebus.connector.endpoints import EMULATOR, Access
from oncebus.connector.errors import BadOption
from oncebus.connector.options import SinkOptions
from oncebus.values.durations import BadDuration, parse_duration

_LOG = logging.getLogger("oncebus.connector")
_NAMESPACE = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
_SCOPE = "https://servicebus.azure.net/.default"
_TOKEN_SECONDS = 300
_PATIENCE = 5.0


class Unknown(Exception):
    """The management API did not say whether the entity detects duplicates."""


def check_detection(options: SinkOptions) -> None:
    """Raise `BadOption` if the entity does not detect duplicates, unless the option `detection` says to ignore it.

    Asks once in each process: Spark makes a writer for each micro-batch.
    """
    if options.requires_detection:
        # A `foreachBatch` has another prefix for each batch.
        _check(replace(options, id_prefix=None))


@lru_cache(maxsize=256)
def _check(options: SinkOptions) -> None:
    entity = options.entity
    access = resolve_access(options.access, entity)
    where = f"{entity} at {access.host}"
    try:
        window = detection_window(call_in_time(lambda: _description(access, entity.name, options.administration_url)))
    except (Unknown, OperationTimeoutError) as error:
        _LOG.warning(
            "Cannot check whether %s detects duplicates (%s). If it does not, a repeated task sends messages twice.",
            where,
            error,
        )
        return
    if window is None:
        raise BadOption(
            f"Duplicate detection is off for {where}, so a repeated task would send its messages twice. Create the "
            "entity with requiresDuplicateDetection, or set the option detection to 'ignore' to accept that."
        )
    if window < options.retry_timeout:
        _LOG.warning(
            "The duplicate detection window of %s is %.0f seconds, shorter than the option retry_timeout (%.0f "
            "seconds). A message that is sent again later than the window arrives twice.",
            where,
            window,
            options.retry_timeout,
        )


def detection_window(description: bytes) -> float | None:
    """Return the window in seconds that an entity's description gives; None if detection is off. Raises `Unknown`."""
    try:
        root = ElementTree.fromstring(description)
        found = root.findtext(f".//{_NAMESPACE}RequiresDuplicateDetection")
        window = root.findtext(f".//{_NAMESPACE}DuplicateDetectionHistoryTimeWindow") or "PT10M"
        if found is None:
            raise Unknown("the answer does not describe an entity")
        return parse_duration(window, "window") / 1e6 if found == "true" else None
    except (ElementTree.ParseError, BadDuration):
        raise Unknown("the answer is not an entity's description") from None


def _description(access: Access, entity: str, url: str | None) -> bytes:
    parts = access.parts()
    place = urlsplit(parts["Endpoint"])
    scheme = "http" if parts.get(EMULATOR) == "true" else "https"
    address = f"{(url or f'{scheme}://{place.netloc}').rstrip('/')}/{quote(entity)}"
    try:
        token = _token(access, parts, address)
        answer = httpx.get(
            address, params={"api-version": "2021-05"}, headers={"Authorization": token}, timeout=_PATIENCE
        )
    except (AzureError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unknown(f"{address}: {type(error).__name__}") from None
    if answer.status_code != 200:
        raise Unknown(f"{address}: status {answer.status_code}")
    return answer.content


def _token(access: Access, parts: dict[str, str], address: str) -> str:
    if access.credential is not None:
        return f"Bearer {access.token_credential().get_token(_SCOPE).token}"
    if "SharedAccessSignature" in parts:
        return parts["SharedAccessSignature"]
    resource, expiry = quote_plus(address), int(time.time()) + _TOKEN_SECONDS
    key = parts.get("SharedAccessKey", "").encode()
    signature = base64.b64encode(hmac.new(key, f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()).decode()
    name = parts.get("SharedAccessKeyName", "")
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(signature)}&se={expiry}&skn={name}"
