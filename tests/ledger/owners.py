"""Processes that own a writer: this one, one on another machine, and one that has ended."""

from __future__ import annotations

from oncebus.ledger import Owner

HERE = Owner.this_process()
ELSEWHERE = Owner("another machine", 1, "0")

_ABOVE_ALL_PIDS = 2**22 + 1


def dead_owner() -> Owner:
    """Return a process of this machine that does not run. Linux gives no process so great a number."""
    owner = Owner(HERE.place, _ABOVE_ALL_PIDS, "1")
    assert owner.is_alive() is False
    return owner
