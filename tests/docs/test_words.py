"""Texts for people use the words of the glossary, and none that it retired."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.name not in ("CHANGELOG.md", "glossary.md") and "decisions" not in page.parts
)
SPOKEN = (
    "programs/cli",
    "programs/dedup",
    "doctor",
    "protocols/monitoring",
    "protocols/portal",
    "values/settings.py",
)
"""The packages and modules whose strings people read."""

_CODE = re.compile(r"```.*?```|^    .*?$|`[^`\n]*`|(?<!\*)\*[A-Za-z-]+\*(?!\*)", re.DOTALL | re.MULTILINE)


class Retired(NamedTuple):
    """A row of the table in the glossary."""

    pattern: re.Pattern[str]
    is_code_read: bool
    may_stay: frozenset[str]

    def found_in(self, text: str) -> list[str]:
        return [found.group() for found in self.pattern.finditer(text if self.is_code_read else _CODE.sub(" ", text))]


def retired() -> Iterator[Retired]:
    _, _, table = (ROOT / "docs" / "reference" / "glossary.md").read_text().partition("## Retired words")
    for line in table.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            pattern = cells[0].strip("`").replace("\\|", "|")
            word = rf"\b{pattern}\b" if pattern.isalpha() else pattern
            places = frozenset(re.findall(r"`([^`]+)`", cells[3]))
            yield Retired(re.compile(word, re.IGNORECASE), cells[1] == "yes", places)


RETIRED = list(retired())


def test_the_table_is_read() -> None:
    assert len(RETIRED) == 7
    accepted, metrics, *_ = RETIRED
    assert accepted.found_in("It was Accepted; *accepted* and `accepted` stay.") == ["Accepted"]
    assert metrics.found_in("`oncebus_messages_delivered_total`") == ["oncebus_messages_delivered"]
    assert "docs/internals/amqp.md" in accepted.may_stay


def test_every_term_has_a_cell_for_what_it_is_called_elsewhere() -> None:
    terms, _, _ = (ROOT / "docs" / "reference" / "glossary.md").read_text().partition("## Retired words")
    rows = [line.count(" |") for line in terms.splitlines() if line.startswith("| ")]
    assert set(rows) == {3}
    for word, elsewhere in (
        ("run", "SSTable"),
        ("ledger", "LSM tree"),
        ("lock", "lease"),
        ("claim", "compare-and-set"),
    ):
        assert re.search(rf"^\| \*\*{word}\*\* \|.*\|[^|]*{elsewhere}[^|]*\|$", terms, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_uses_a_retired_word(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    text = page.read_text()
    for each in RETIRED:
        assert name in each.may_stay or not each.found_in(text), each.pattern.pattern


def test_no_text_of_a_command_or_metric_uses_a_retired_word() -> None:
    found = []
    for part in SPOKEN:
        place = ROOT / "src" / "oncebus" / part
        for module in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for line, text in texts(module):
                used = [word for each in RETIRED for word in each.found_in(text)]
                found += [f"{module.relative_to(ROOT)}:{line}: {word}" for word in used]
    assert found == []


def texts(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are sentences or titles, and the help of its commands.

    A string of one lower-case word is a name in the code, and other docstrings are for its readers.
    """
    tree = ast.parse(module.read_text())
    documented = {
        node: ast.get_docstring(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    helps = {made: text for made, text in documented.items() if isinstance(made, ast.FunctionDef) and text is not None}
    for made, text in helps.items():
        if any("click" in ast.unparse(each) for each in made.decorator_list):
            yield made.lineno, text
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in strings:
        text = str(node.value)
        if " " in text.strip() and inspect.cleandoc(text) not in documented.values():
            yield node.lineno, text
