"""Tests that the files and packages that the documentation names exist, and that README.md stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import DOCS, links

ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "oncebus"
MAPS = ["ARCHITECTURE.md", "CONTRIBUTING.md"]
PAGES = sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))
LONGEST_README = 89

# A path in backticks, relative to the repository or to the package.
_PATH = re.compile(r"`([A-Za-z_.][\w.-]*(?:/[\w.-]+)*/?)`")
_SUFFIXES = {".py", ".md", ".json", ".toml", ".yml", ".txt", ".svg"}
_IN_REPOSITORY = re.compile(r"`((?:src|tests|bench|examples|tools|docs|oncebus)/[\w./-]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def named(text: str) -> set[str]:
    """Return the paths that a text names."""
    return {path for path in _PATH.findall(text) if "/" in path or Path(path).suffix in _SUFFIXES}


def exists(path: str) -> bool:
    """Return whether a path exists in the repository or in the package."""
    found = [place for place in (ROOT / path, PACKAGE / path, ROOT / "src" / path) if place.exists()]
    return any(place.is_dir() or not path.endswith("/") for place in found)


# Created by commands, not kept in the repository.
MADE = {"build/site"}


@pytest.mark.parametrize("name", MAPS)
def test_every_path_on_the_map_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    paths = named(text)
    assert len(paths) > 15
    assert [path for path in sorted(paths - MADE) if not exists(path)] == []


@pytest.mark.parametrize("name", [*MAPS, "README.md", "CHANGELOG.md", "SECURITY.md"])
def test_every_link_leads_to_something(name: str) -> None:
    text = (ROOT / name).read_text()
    assert [link for link in _LINK.findall(text) if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_a_page_names_exists(name: str) -> None:
    paths = _IN_REPOSITORY.findall((ROOT / name).read_text())
    assert [path for path in paths if not exists(path)] == []


def layers() -> dict[str, int]:
    """Return the layer of each package and module, as ARCHITECTURE.md has it."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if re.match(r"\| \d", line)]
    return {name: number for number, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)}


def imported(path: Path) -> Iterator[str]:
    """Yield the packages of Oncebus that a module imports, also inside its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [
                f"{node.module}.{each.name}" if node.module == "oncebus" else str(node.module) for each in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("oncebus."))


def test_every_package_is_in_one_layer() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(layers()) == there - {"__init__", "__main__"}


def test_packages_import_only_packages_of_their_layer_or_earlier_ones() -> None:
    layer = layers()
    wrong = {
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        # It runs the commands.
        if path != PACKAGE / "__main__.py"
        for name in imported(path)
        if name in layer and layer[name] > layer.get(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), 0)
    }
    assert wrong == set()


# Pages with a table of all modules of their package. The portal's page has its own test.
TABLES = ["arm", "atom", "broker", "entities", "management", "servicebus", "templates"]


@pytest.mark.parametrize("package", TABLES)
def test_the_table_of_modules_is_complete(package: str) -> None:
    [page] = DOCS.rglob(f"{package}.md")
    text = page.read_text()
    table = text.partition("\n| module |")[2].partition("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+?)(?:\.py)?`", line.split("|")[1])}
    also = set(re.findall(r"`(\w+)\.py`", table))
    [folder] = [path.parent for path in PACKAGE.rglob(f"{package}/__init__.py")]
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert named <= there
    assert there - named - also == set()


# Folders that only hold packages.
GROUPS = {"engine", "model", "programs", "protocols", "sql", "values"}


def test_every_package_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("\n## What lives where\n")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    layers = {path.parent.name for path in PACKAGE.glob("*/*/__init__.py") if path.parent.parent != PACKAGE}
    packages = layers | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - named - GROUPS == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


def test_every_page_is_two_clicks_from_the_front_door() -> None:
    front = {DOCS / "README.md"}
    first = {link for page in front for link in links(str(page.relative_to(DOCS)))}
    second = {link for page in first if page.is_relative_to(DOCS) for link in links(str(page.relative_to(DOCS)))}
    assert set(DOCS.rglob("*.md")) - front - first - second == set()
