"""The page of the pipeline: what waits for Spark, its newest batches, and where the time of messages went.

All figures are those of the metrics.
"""

from __future__ import annotations

from starlette.responses import Response

from oncebus.broker.latencies import BOUNDS, Latency
from oncebus.model.access import Operation
from oncebus.protocols.portal.layout import empty, follow_box, section_head, tile, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import count_in_words, number, size_in_words, span
from oncebus.values.durations import SECOND

SHOWN = 20
_STEPS = (
    Column("Step"),
    Column("Average", is_number=True, short="average"),
    Column("Share", is_wide=True),
    Column("Half within", is_number=True, short="half"),
    Column("99% within", is_number=True, short="99%"),
    Column("Observed", is_number=True, is_wide=True),
    Column("Metric", is_wide=True),
)
_BATCHES = (
    Column("When"),
    Column("Messages", is_number=True),
    Column("Commits", is_number=True, is_wide=True),
    Column("Outbox entries", is_number=True, is_wide=True),
    Column("Time", is_number=True),
    Column("Judging", is_number=True),
    Column("Ingesting", is_number=True, is_wide=True),
)


async def show(visit: Visit) -> Response:
    """Return the page."""
    visit.require(Operation.METRICS)
    hint = (
        "Spark judges every message: it is new, or a duplicate. Then it routes new ones to queues and subscriptions, "
        "and the gateway ingests the result."
    )
    return visit.page(
        "Pipeline",
        top("Pipeline", ("Overview", link())),
        tag("div", tag("p", hint, class_="hint"), follow_box("pipeline", is_on=True), class_="toolbar"),
        tag("div", await _tiles(visit), _steps(visit), _batches(visit), data_region="pipeline"),
        here=link("pipeline"),
    )


async def _tiles(visit: Visit) -> Markup:
    desk = visit.desk
    pipeline, remembered = desk.broker.pipeline, desk.remembered
    problem = desk.health.problem()
    summary = await remembered.summary()
    waits = "nothing waits" if pipeline.lag == 0 else f"the oldest for {span(pipeline.oldest_wait)}"
    tiles = [
        tile(
            "State", "Healthy" if problem is None else "Unhealthy", problem or "", "good" if problem is None else "bad"
        ),
        tile("Lag", count_in_words(pipeline.lag, "commit"), waits),
        tile("Last output", f"{span(round(desk.health.silence * SECOND))} ago", "a pulse comes every few seconds"),
        tile("Inbox", size_in_words(pipeline.inbox_bytes), f"up to commit {number(pipeline.last_commit)}"),
        tile("Throughput", f"{size_in_words(round(pipeline.work_per_second))}/s", "when it was last busy"),
    ]
    if summary is None:
        tiles.append(tile("Ledger", "unknown", "it cannot be read now"))
    else:
        held = f"{size_in_words(summary.bytes)} in {count_in_words(summary.runs, 'run')}"
        tiles.append(tile("Remembered ids", number(summary.ids), held))
        restarts = count_in_words(remembered.restarts, "restart")
        tiles.append(tile("Generation", number(summary.generation), f"{restarts} since the gateway started"))
    return tag("div", tiles, class_="tiles")


def _steps(visit: Visit) -> Markup:
    """Return the table of the steps of a message, with averages since the start."""
    latencies = visit.desk.broker.latencies
    received = _average(latencies.end_to_end)
    before = (_average(latencies.judge) or 0.0) + (_average(latencies.ingest) or 0.0)
    steps: list[tuple[str, Latency | None, float | None, str]] = [
        ("Sent: durable in the inbox, and answered", latencies.send, _average(latencies.send), "send"),
        ("Judged: verdicts in the outbox", latencies.judge, _average(latencies.judge), "judge"),
        ("Ingested: ready to be received", latencies.ingest, _average(latencies.ingest), "ingest"),
        ("Received: waited for a consumer", None, None if received is None else max(received - before, 0.0), ""),
        ("In all, from the answer until it is received", latencies.end_to_end, received, "end_to_end"),
    ]
    whole = sum(average or 0.0 for _, _, average, _ in steps[:-1])
    rows = [_step(*step, whole, is_total=step is steps[-1]) for step in steps]
    heading = section_head("Where a message's time went")
    note = tag("p", "Averages and quantiles since the gateway started. Quantiles are rounded up.", class_="note")
    return tag("section", heading, note, table("Steps of a message", _STEPS, rows))


def _step(
    title: str, latency: Latency | None, average: float | None, metric: str, whole: float, *, is_total: bool
) -> TableRow:
    name, _, meaning = title.partition(":")
    heading: list[Content] = [name, tag("span", meaning, class_="none")]
    bar: Content = None
    if average is not None and whole and not is_total:
        rectangle = tag("rect", width=f"{max(100 * average / whole, 0.5):.1f}", height=10)
        bar = tag(
            "svg", rectangle, class_="proportion", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true"
        )
    cells: list[Content] = [
        "–" if average is None else span(round(average)),
        bar,
        "–" if latency is None else _within(latency, 0.5),
        "–" if latency is None else _within(latency, 0.99),
        "–" if latency is None else number(sum(latency.counts)),
        tag("code", f"oncebus_{metric}_seconds") if metric else "the rest",
    ]
    return TableRow(heading, cells)


def _batches(visit: Visit) -> Markup:
    now = visit.desk.broker.clock.passed()
    rows = []
    for batch in list(visit.desk.broker.batches)[:SHOWN]:
        cells: list[Content] = [number(batch.rows), number(batch.commits), number(batch.entries), span(batch.waited)]
        cells += [span(batch.waited - batch.ingesting), span(batch.ingesting)]
        rows.append(TableRow(f"{span(max(now - batch.at, 0))} ago", cells))
    content = table("Newest batches", _BATCHES, rows) if rows else empty("No batch since the gateway started.")
    return tag("section", section_head("Newest batches"), content)


def _average(latency: Latency) -> float | None:
    count = sum(latency.counts)
    return latency.total / count if count else None


def _within(latency: Latency, quantile: float) -> str:
    """Return an upper bound of a quantile, from the buckets."""
    wanted, seen = quantile * sum(latency.counts), 0
    if not wanted:
        return "–"
    for bound, count in zip(BOUNDS, latency.counts, strict=False):
        seen += count
        if seen >= wanted:
            return span(bound) if bound >= 1000 else f"{bound / 1000:.1f} ms"
    return f"> {span(BOUNDS[-1])}"
