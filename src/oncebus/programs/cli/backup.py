"""`oncebus backup`: copies the data folder of a broker, which may be running."""

from __future__ import annotations

import time
from pathlib import Path

import click

from oncebus.ledger.overview_texts import size_text
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.token import client_settings

_EXAMPLE = "oncebus backup ./oncebus-monday"
_TIMEOUT_SECONDS = 600.0


@click.command(short_help="Copy the data of a broker, also while it runs.", epilog=f"Example: {_EXAMPLE}")
@click.argument("folder", type=click.Path(path_type=Path))
@broker_options
def backup(broker: BrokerLocation, folder: Path) -> None:
    """Copy everything that a broker has stored into a new folder, which appears when the copy is whole and durable.

    Run it on the broker's machine, as the broker's user. The broker may run: sends wait for a moment while it makes a
    snapshot in its data folder. To restore a copy, stop the broker and give it the copy as its data folder.
    """
    from oncebus.engine.backup import copy_durably
    from oncebus.engine.folders import Folders
    from oncebus.engine.snapshot import drop_snapshot
    from oncebus.programs.serve.checks import CannotServe, only_backup, while_stopped

    folders, target = (
        Folders(client_settings(broker.data, broker.key_file, broker.settings_file).data),
        folder.absolute(),
    )
    began = time.monotonic()
    with only_backup(folders.data):
        try:
            with while_stopped(folders.data):
                size = copy_durably(folders.data, target)
        except CannotServe:
            try:
                with broker.connect() as client:
                    client.ask("POST", "/$snapshot", timeout=_TIMEOUT_SECONDS)
                size = copy_durably(folders.snapshot, target)
            finally:
                drop_snapshot(folders)
    click.echo(f"Copied {size_text(size)} to '{target}' in {time.monotonic() - began:.1f} s.")
