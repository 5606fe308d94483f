"""`oncebus dedup`: copies the rows of files without duplicates, and the dropped rows to another folder."""

from __future__ import annotations

import click

from oncebus.ledger import Ledger
from oncebus.programs.cli.printing import print_gaps, print_line
from oncebus.programs.cli.signals import interrupt_on_sigterm
from oncebus.programs.dedup.request import DedupRequest, check_places, lateness_of
from oncebus.programs.dedup.sources import FORMATS, local_path

_EXAMPLE = "oncebus dedup orders.jsonl --key id --time at --window '10 minutes' --out unique --duplicates dropped"


@click.command(short_help="Remove duplicate rows from files.", epilog=f"Example: {_EXAMPLE}")
@click.argument("src", nargs=-1, required=True, metavar="SRC…")
@click.option("--key", "key", multiple=True, required=True, metavar="COL", help="Key column; repeatable.")
@click.option("--time", "time", required=True, metavar="COL", help="Timestamp column; text is parsed.")
@click.option("--window", metavar="TEXT", help="10m, PT10M, '10 minutes', or a column that holds the window.")
@click.option("--out", metavar="DIR", help="Folder for the rows that are not duplicates.")
@click.option("--duplicates", metavar="DIR", help="Folder for the duplicates, each with the time of its original.")
@click.option("--ledger", metavar="DIR", help="Folder that remembers keys from run to run.")
@click.option("--sequence", metavar="COL", help="Whole-number column that breaks ties in time.")
@click.option("--lateness", metavar="TEXT", help="How much longer than the window to remember a key.")
@click.option(
    "--format", "format_name", type=click.Choice(FORMATS), help="Format of SRC; by default guessed from file names."
)
@click.option("--master", metavar="URL", help="Spark master; defaults to local[*].")
@click.option(
    "--gaps", is_flag=True, help="Write nothing: show how far apart the rows of a key are, to choose a window by."
)
@click.option("--follow", is_flag=True, help="Process new files as they arrive, until Ctrl-C.")
@click.option("--overwrite", is_flag=True, help="Replace the output of another run.")
@click.option("--take-over", is_flag=True, help="Take the ledger from a stopped query that will not continue.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def dedup(
    src: tuple[str, ...],
    key: tuple[str, ...],
    time: str,
    window: str | None,
    out: str | None,
    duplicates: str | None,
    ledger: str | None,
    sequence: str | None,
    lateness: str | None,
    format_name: str | None,
    master: str | None,
    gaps: bool,
    follow: bool,
    overwrite: bool,
    take_over: bool,
    as_json: bool,
) -> None:
    """Copy the rows of SRC (files or folders of Parquet, JSON lines or CSV) without duplicates.

    A row is a duplicate if a row with the same key was kept less than one window away in time. A row with null in a
    key column is never a duplicate. If a run fails or is killed, run it again. A finished run is not repeated.
    """
    if gaps:
        if any((window, out, duplicates, ledger, lateness, follow, overwrite, take_over)):
            raise click.UsageError("Option --gaps goes with --key, --time, --format, --master and --json only.")
        interrupt_on_sigterm()
        from oncebus.programs.dedup.gaps import run_gaps

        found = run_gaps(src, key, time, format_name, master)
        if as_json:
            print_line(found.to_json())
        else:
            click.echo(f"{found}.")
            print_gaps(found)
        return
    if window is None or out is None:
        raise click.MissingParameter(param_type="option", param_hint="'--window'" if window is None else "'--out'")
    request = DedupRequest(
        src,
        key,
        time,
        window,
        local_path(out, "Output"),
        local_path(duplicates, "Output") if duplicates is not None else None,
        Ledger.open(ledger).location if ledger is not None else None,
        sequence,
        lateness_of(lateness) if lateness is not None else None,
        format_name,
        master,
        overwrite,
        take_over,
    )
    check_places(request, tuple(local_path(text, "Source") for text in request.given))
    interrupt_on_sigterm()
    # Imported late, so that `oncebus dedup --help` does not load Spark.
    if follow:
        from oncebus.programs.dedup.follow import run_follow

        run_follow(request, as_json=as_json)
        return
    from oncebus.programs.dedup.batch import run_batch

    run_batch(request, as_json=as_json)
