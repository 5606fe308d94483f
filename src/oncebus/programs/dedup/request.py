"""The request for a run, from the arguments of the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebus.model.entities.timespans import duration_in, iso_timespan
from oncebus.programs.dedup import DedupError
from oncebus.programs.dedup.sources import local_path
from oncebus.values.durations import NotADuration, checked_duration


@dataclass(frozen=True, slots=True)
class DedupRequest:
    """The sources, options and folders of a run, checked as far as possible without Spark."""

    given: tuple[str, ...]
    key: tuple[str, ...]
    time: str
    window: str
    out: Path
    duplicates: Path | None
    ledger: str | None
    sequence: str | None
    lateness: str | None
    format: str | None
    master: str | None
    overwrite: bool
    take_over: bool = False

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the output folders: the one for accepted rows, then the one for duplicates if requested."""
        return (self.out,) if self.duplicates is None else (self.out, self.duplicates)

    def window_among(self, columns: Sequence[str]) -> str:
        """Return the window in a form that Spark accepts: the name of a column if `columns` has it, else a duration."""
        if self.window in columns:
            return self.window
        if not is_duration(self.window):
            # It may be a misspelled column. Passing it on gives an error that lists all columns.
            return self.window
        return iso_timespan(checked_duration(duration_in(self.window, "window"), self.window, "window"))

    def needed_among(self, columns: Sequence[str]) -> set[str]:
        """Return the columns that detection needs; all of them if one is missing, because the error lists them."""
        given = [*self.key, self.time, *([] if self.sequence is None else [self.sequence])]
        if self.window in columns or not is_duration(self.window):
            given.append(self.window)
        needed = {name if name in columns else name.partition(".")[0] for name in given}
        return needed if needed.issubset(columns) else set(columns)

    def arguments(self, format_name: str) -> dict[str, Any]:
        """Return the arguments that affect the result, by option name."""
        return {
            "key": list(self.key),
            "time": self.time,
            "window": self.window,
            "sequence": self.sequence,
            "lateness": self.lateness,
            "format": format_name,
            "source": [str(local_path(text, "Source")) for text in self.given],
            "duplicates": str(self.duplicates) if self.duplicates else None,
            "ledger": self.ledger,
        }


def is_duration(text: str) -> bool:
    """Return whether a text has one of the forms of a duration."""
    try:
        duration_in(text, "window")
    except NotADuration:
        return False
    return True


def check_places(request: DedupRequest, given: tuple[Path, ...]) -> None:
    """Raise `DedupError` if one folder is inside another: it would be read or deleted together with the outer one."""
    named = [*(("Source", path) for path in given), *(("Output", path) for path in request.folders)]
    if request.ledger is not None and Path(request.ledger).is_absolute():
        named.append(("Ledger", Path(request.ledger)))
    for at, (what, path) in enumerate(named):
        for other_what, other in named[:at]:
            if what == other_what == "Source":
                continue
            inner, outer = path.resolve(), other.resolve()
            if inner.is_relative_to(outer) or outer.is_relative_to(inner):
                raise DedupError(f"{what} '{path}' and {other_what.lower()} '{other}' must not contain each other.")


def lateness_of(text: str) -> str:
    """Return the lateness in a form that Spark accepts. Raises `BadDuration`."""
    return iso_timespan(checked_duration(duration_in(text, "lateness"), text, "lateness", least=0))
