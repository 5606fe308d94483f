from __future__ import annotations

import pytest

from oncebus.protocols.portal.hosts import Hosts


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://", "null", "", "http://evil.example.org", "x"])
def test_an_origin_that_is_no_page_of_ours_is_foreign(origin: str) -> None:
    assert Hosts().foreign("localhost:8080", origin) is not None


@pytest.mark.parametrize("origin", [None, "http://localhost", "http://localhost:3000", "https://[::1]:8443"])
def test_pages_of_this_machine_are_ours(origin: str | None) -> None:
    assert Hosts().foreign("localhost:8080", origin) is None
