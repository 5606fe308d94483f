"""Debian's Chromium, driven with Playwright. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from .served import Served

PROGRAM = "chromium"
MISSING = "The portal's tests need the program 'chromium'. Install it: apt-get install chromium"


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.fail(MISSING, pytrace=False)
    # Chromium's sandbox does not work for root, nor in most containers.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def sign_in(page: Page, served: Served) -> None:
    """Sign in with the root key, from the root of the gateway."""
    page.goto(served.url)
    page.get_by_label("Connection string", exact=True).fill(served.string())
    page.get_by_role("button", name="Sign in").first.click()
    page.get_by_role("heading", name="Overview", exact=True).wait_for()
