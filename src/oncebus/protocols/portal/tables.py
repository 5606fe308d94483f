"""Dense tables: one line per row, and two lines on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from oncebus.protocols.portal.markup import Content, Markup, tag


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `sort` is the name by which the table can be sorted. A phone leaves out a column that `is_wide`, and shows the title
    of a number before it; `short` is a shorter title for that. `note` explains the
    title when the pointer is over it.
    """

    title: str
    is_number: bool = False
    is_wide: bool = False
    sort: str | None = None
    short: str | None = None
    note: str | None = None

    @property
    def classes(self) -> str | None:
        """Return the classes of its cells."""
        named = [name for name, is_so in (("number", self.is_number), ("wide", self.is_wide)) if is_so]
        return " ".join(named) or None


@dataclass(frozen=True, slots=True)
class Sorting:
    """How a table is sorted, and the address that sorts it by another column in a direction."""

    by: str
    is_descending: bool
    address: Callable[[str, bool], str]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: the content of the first column, which names it, and of the others.

    `choose` is a checkbox before it.
    """

    name: Content
    cells: Sequence[Content]
    choose: Content = None
    is_current: bool = False


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[TableRow],
    *,
    sorting: Sorting | None = None,
    choose_all: bool = False,
) -> Markup:
    """Return a table. With `choose_all`, each row has a checkbox, and the script adds one for all of them."""
    heads = [_head(each, sorting) for each in columns]
    if choose_all:
        box = tag("input", type="checkbox", aria_label="Choose all on this page", data_choose_all=True, hidden=True)
        heads.insert(0, tag("td", box, class_="choose"))
    body = [_row(each, columns, choose_all) for each in rows]
    title = tag("caption", caption, class_="unseen")
    content = tag("table", title, tag("thead", tag("tr", heads)), tag("tbody", body), class_="dense")
    return tag("div", content, class_="scroll")


def _head(column: Column, sorting: Sorting | None) -> Markup:
    content: Content = column.title
    order = None
    if sorting is not None and column.sort is not None:
        is_here = sorting.by == column.sort
        # Numbers begin with the greatest, names with the first.
        is_descending = not sorting.is_descending if is_here else column.is_number
        if is_here:
            order = "descending" if sorting.is_descending else "ascending"
        content = tag("a", column.title, href=sorting.address(column.sort, is_descending))
    return tag("th", content, scope="col", title=column.note, class_=column.classes, aria_sort=order)


def _row(row: TableRow, columns: Sequence[Column], has_choice: bool) -> Markup:
    cells = [
        tag("td", cell, data_title=column.short or column.title, class_=column.classes)
        for column, cell in zip(columns[1:], row.cells, strict=True)
    ]
    choose = tag("td", row.choose, class_="choose") if has_choice else None
    name = tag("th", row.name, scope="row", class_=columns[0].classes)
    return tag("tr", choose, name, cells, class_="current" if row.is_current else None)


def choice_box(number: int, label: str) -> Markup:
    """Return the checkbox of the row with a number. `Visit.chosen_numbers` reads those that are checked."""
    return tag("input", type="checkbox", name="number", value=number, aria_label=label)
