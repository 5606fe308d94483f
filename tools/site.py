"""Adds the pages of the repository's root to the documentation site. `mkdocs.yml` names this file as a hook.

Links in these pages are written for GitHub. The site has the pages in other places, so each link is rewritten to lead
to the same page there. A link to a file that is not a page, such as a source file, becomes plain text. A broken link
stays as it is, and `mkdocs build --strict` fails on it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# Where the site has the pages of the root.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
SOURCES = {page: name for name, page in PAGES.items()}

DECISIONS = "Decisions"
"""Their heading in the navigation."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config: Any) -> Any:
    """List all decisions in the navigation, in order, so that a new one needs no entry there."""
    for item in config.nav:
        if DECISIONS in item:
            item[DECISIONS] += sorted(f"decisions/{path.name}" for path in (DOCS / "decisions").glob("[0-9]*.md"))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn a page's links to where the site has what they lead to."""
    return turned(markdown, page.file.src_uri)


def turned(markdown: str, page: str) -> str:
    """The text of a page of the site, with links that work there."""
    source = ROOT / SOURCES[page] if page in SOURCES else DOCS / page

    def turn(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        found = (source.parent / path).resolve()
        if not found.exists() or not found.is_relative_to(ROOT):
            return link[0]
        place = _place(found)
        if place is None:
            return text
        there = os.path.relpath(place, (DOCS / page).parent)
        return f"{picture}[{text}]({there}{hash_}{anchor})"

    return _LINK.sub(turn, markdown)


def _place(found: Path) -> Path | None:
    """Where the site has a file of the repository, if it has it."""
    if (name := str(found.relative_to(ROOT))) in PAGES:
        return DOCS / PAGES[name]
    if found.is_dir():
        found = found / "README.md"
    return found if found.is_relative_to(DOCS) and found.is_file() else None
