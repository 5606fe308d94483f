"""Checks of accessibility with axe-core: problems of a page for people who see it badly, or not at all."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from playwright.sync_api import Page

from tests import npm

WANTED = Path(__file__).parent / "axe"

_RUN = """async () => {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations.flatMap((rule) => rule.nodes.map((node) =>
        `${rule.id}: ${node.html.slice(0, 120)} ${node.failureSummary.replace(/\\s+/g, " ").slice(0, 200)}`));
}"""


@cache
def _axe() -> str:
    folder = npm.installed(WANTED, Path(sys.prefix) / "axe")
    return (folder / "axe-core/axe.min.js").read_text()


def hard_to_use(page: Page) -> list[str]:
    """Return all violations on a page, in words."""
    page.evaluate(_axe())
    found: list[str] = page.evaluate(_RUN)
    return found
