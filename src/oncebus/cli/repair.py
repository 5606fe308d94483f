"""`oncebus repair`: puts right what a stopped broker cannot go on with."""

from __future__ import annotations

from typing import Any

import click

from oncebus.cli.serve import settings_of, settings_options
from oncebus.settings import SETTINGS

_USED = ("data", "log_format", "log_level")


@click.group(
    short_help="Repair the data folder of a stopped broker.",
    epilog="Example: oncebus repair clock --data ./oncebus-data",
)
def repair() -> None:
    """Repair the data folder of a broker that is stopped."""


@repair.command(
    short_help="Move times that lie in the future to now.",
    epilog="Example: oncebus repair clock --data ./oncebus-data",
)
@settings_options(*(name for name in SETTINGS if name not in _USED))
def clock(settings_file: str | None, **given: Any) -> None:
    """Move every stored time that lies in the future to now, after the clock was ahead. Set the clock right first.

    No message is lost. Ids that were accepted under the wrong clock are remembered for one window from now on. Messages
    that were enqueued under it are enqueued now, and their time to live begins again. Scheduled times stay. The broker
    must be stopped. If the command is interrupted, run it again: until then the broker does not start.
    """
    settings = settings_of(given, settings_file)
    from oncebus.broker.clock import wall_time
    from oncebus.broker.repair import repair_clock
    from oncebus.durations import utc_text
    from oncebus.folders import Folders
    from oncebus.serve.checks import stopped

    data = settings.data.absolute()
    with stopped(data):
        done = repair_clock(Folders(data), wall_time())
    click.echo(
        f"Moved to {utc_text(done.now)}: {_counted(done.ids, 'id')} in the ledger, {_counted(done.rows, 'row')} in "
        f"inbox and outbox, {_counted(done.messages, 'message')} in the store."
    )


@repair.command(
    short_help="Begin a new ledger: all ids are forgotten.",
    epilog="Example: oncebus repair ledger --data ./oncebus-data",
)
@settings_options(*(name for name in SETTINGS if name not in _USED))
def ledger(settings_file: str | None, **given: Any) -> None:
    """Begin a new ledger in place of one that is lost, damaged or from another copy. All ids are forgotten.

    No message is lost, but a message that was sent before is not known to be a duplicate if it is sent again. The old
    ledger is set aside, in a folder beside it. The broker must be stopped. If the command is interrupted, run it again.
    """
    settings = settings_of(given, settings_file)
    from oncebus.broker.clock import wall_time
    from oncebus.broker.repair import give_up_ledger
    from oncebus.folders import Folders
    from oncebus.serve.checks import stopped

    data = settings.data.absolute()
    with stopped(data):
        aside = give_up_ledger(Folders(data), wall_time())
    click.echo("All ids are forgotten." + (f" The old ledger is now '{aside}'." if aside else ""))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
