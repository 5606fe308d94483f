"""Tests that the documentation site builds without warnings, loads nothing from other servers, and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .pages import DOCS

ROOT = DOCS.parent
BUILT = ROOT / "build" / "site"
# The elements and attributes that a browser loads by itself, unlike links to click on.
LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
OUTSIDE = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import\s+)\s*["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
# Kinds of link elements that browsers do not load: they name the page's own address or its neighbours.
NOT_LOADED = {"canonical", "next", "prev"}


def is_up_to_date(folder: Path) -> bool:
    """Return whether a site is newer than everything that it is built from."""
    sources = [DOCS, ROOT / "src", ROOT / "tools", *ROOT.glob("*.md"), ROOT / "mkdocs.yml"]
    files = [path for each in sources for path in (each.rglob("*") if each.is_dir() else [each])]
    built = folder / "index.html"
    return built.exists() and built.stat().st_mtime > max(
        path.stat().st_mtime for path in files if path.suffix != ".pyc" and path.is_file()
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, unless that has just been done, and return its folder."""
    if is_up_to_date(BUILT):
        return BUILT
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class _Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("rel") not in NOT_LOADED and (address := given.get(LOADED.get(tag, ""))):
            self.found.append(address)
        self.found += IN_STYLES.findall(given.get("style") or "")


def loads(page: str) -> list[str]:
    parser = _Loads()
    parser.feed(page)
    return parser.found + IN_STYLES.findall("".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL)))


def test_it_loads_nothing_from_other_servers(site: Path) -> None:
    found = {
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*.html")
        for address in loads(path.read_text())
        if OUTSIDE.match(address)
    }
    found |= {f"{path.name}: {url}" for path in site.rglob("*.css") for url in IN_STYLES.findall(path.read_text())}
    assert found == set()


def test_something_loaded_from_another_server_would_be_noticed() -> None:
    page = (
        '<link rel="stylesheet" href="https://a/b.css"><style>@import "//c/d";</style><script src="https://e"></script>'
    )
    assert loads(page) == ["https://a/b.css", "https://e", "//c/d"]


def sources() -> Iterator[Path]:
    yield from (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    yield from map(
        Path, ("index.md", "documentation.md", "architecture.md", "contributing.md", "changelog.md", "reporting.md")
    )


def test_every_page_exists(site: Path) -> None:
    for source in sources():
        name = source.with_name("index.html") if source.name == "README.md" else source.with_suffix(".html")
        assert (site / name).is_file(), source


def test_the_api_comes_from_the_docstrings(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    for name in ("detect_duplicates", "Ledger.open", "Ledger.batch", "Ledger.confirm", "LedgerBatch"):
        assert f'id="oncebus.spark.{name}"' in page
    assert "A row with a null in one of them is never a duplicate." in " ".join(re.sub(r"<[^>]+>", "", page).split())


def test_links_of_pages_of_the_root_lead_into_the_site(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert 'href="guides/applications.html"' in index
    assert 'src="images/portal-overview.png"' in index
    assert 'href="architecture.html"' in index
    assert 'href="../reporting.html"' in (site / "reference" / "security.html").read_text()


def test_every_decision_is_in_the_list_and_in_the_navigation(site: Path) -> None:
    listed, index = (DOCS / "decisions" / "README.md").read_text(), (site / "index.html").read_text()
    decisions = sorted(path.stem for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert len(decisions) >= 12
    assert [name for name in decisions if f"]({name}.md)" not in listed] == []
    assert [name for name in decisions if f'href="decisions/{name}.html"' not in index] == []
