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

# The names on the site of pages whose own name is taken there, or that lie outside of docs.
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "documentation.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
SOURCES = {page: name for name, page in PAGES.items()}

DECISIONS = "Decisions"
"""The heading of the decisions in the navigation."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config: Any) -> Any:
    """List all decisions in the navigation, in order, so that a new one needs no entry there."""
    for item in config.nav:
        if DECISIONS in item:
            item[DECISIONS] += sorted(f"decisions/{path.name}" for path in (DOCS / "decisions").glob("[0-9]*.md"))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the root's pages to the site, and give the front page of docs its own name."""
    files.remove(files.get_file_from_path("README.md"))
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite a page's links so that they work on the site."""
    return with_site_links(markdown, page.file.src_uri)


def with_site_links(markdown: str, page: str) -> str:
    """Return the text of a page with links that work on the site."""
    source = ROOT / SOURCES[page] if page in SOURCES else DOCS / page

    def rewritten(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        found = (source.parent / path).resolve()
        if not found.exists() or not found.is_relative_to(ROOT):
            return link[0]
        on_site = _path_on_site(found)
        if on_site is None:
            return text
        relative = os.path.relpath(on_site, (DOCS / page).parent)
        return f"{picture}[{text}]({relative}{hash_}{anchor})"

    return _LINK.sub(rewritten, markdown)


def _path_on_site(found: Path) -> Path | None:
    """Return the path of a file's page on the site; None if the file is not a page."""
    if found.is_dir():
        found = found / "README.md"
    if (name := str(found.relative_to(ROOT))) in PAGES:
        return DOCS / PAGES[name]
    return found if found.is_relative_to(DOCS) and found.is_file() else None
