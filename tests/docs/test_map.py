"""What ARCHITECTURE.md, CONTRIBUTING.md and the pages say is where is there; README.md stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import DOCS

ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "oncebus"
MAPS = ["ARCHITECTURE.md", "CONTRIBUTING.md"]
PAGES = sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))
LONGEST_README = 80

# A path between backticks: of the repository, or of the package.
_PATH = re.compile(r"`([A-Za-z_.][\w.-]*(?:/[\w.-]+)*/?)`")
_SUFFIXES = {".py", ".md", ".json", ".toml", ".yml", ".txt", ".svg"}
_IN_REPOSITORY = re.compile(r"`((?:src|tests|bench|examples|tools|docs|oncebus)/[\w./-]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def named(text: str) -> set[str]:
    """The paths that a map names."""
    return {path for path in _PATH.findall(text) if "/" in path or Path(path).suffix in _SUFFIXES}


def is_there(path: str) -> bool:
    """Whether a path is one of the repository, or of the package."""
    found = [place for place in (ROOT / path, PACKAGE / path, ROOT / "src" / path) if place.exists()]
    return any(place.is_dir() or not path.endswith("/") for place in found)


# These are made by commands, not kept.
MADE = {"build/site"}


@pytest.mark.parametrize("name", MAPS)
def test_every_path_on_the_map_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    paths = named(text)
    assert len(paths) > 15
    assert [path for path in sorted(paths - MADE) if not is_there(path)] == []


@pytest.mark.parametrize("name", [*MAPS, "README.md", "CHANGELOG.md", "SECURITY.md"])
def test_every_link_leads_to_something(name: str) -> None:
    text = (ROOT / name).read_text()
    assert [link for link in _LINK.findall(text) if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_a_page_names_is_there(name: str) -> None:
    paths = _IN_REPOSITORY.findall((ROOT / name).read_text())
    assert [path for path in paths if not is_there(path)] == []


def test_every_package_is_in_one_layer() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if re.match(r"\| \d", line)]
    layered = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(layered) == sorted(there - {"__init__", "__pycache__"})


def test_every_package_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("\n## What lives where\n")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - told == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README
