"""The check of a write that its entity detects duplicates, without Spark: it goes on if the answer is unknown."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from azure.core.exceptions import ClientAuthenticationError

from oncebus.connector.detecting import check_detection
from oncebus.connector.options import sink_options


class Refused:
    """A credential that gets no token, as those of azure.identity do without a login."""

    def get_token(self, *scopes: str) -> object:
        raise ClientAuthenticationError(f"No token for {scopes}.")


def test_a_credential_without_a_token(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    package = ModuleType("azure.identity")
    package.Refused = Refused  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.identity", package)
    check_detection(sink_options({"namespace": "n.invalid", "credential": "Refused", "queue": "orders"}))
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning == (
        "Cannot check whether queue 'orders' at n.invalid detects duplicates (https://n.invalid/orders: "
        "ClientAuthenticationError). If it does not, a repeated task sends messages twice."
    )
