"""Compare random lives of a ledger (streams, batches, backfills, failures) with the reference model.

A life is a sequence of epochs. Each epoch is a batch, or a query with its own checkpoint, and writes to the same
ledger. The model predicts which keys the next epoch must remember. Everything is drawn from one seed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import InheritableThread, TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from oncebus.ledger import LedgerInUse
from oncebus.spark import Ledger, detect_duplicates
from tests.histories import SECOND, START
from tests.reference import Message, Reference, Verdict
from tests.spark.streams import FAR_FUTURE, SCHEMA, Stream, verdicts, write_batch

Found = dict[Message, Verdict]
OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}


class Planned(Exception):
    """A failure that the test causes on purpose."""


@dataclass
class Life:
    spark: SparkSession
    folder: Path
    seed: int
    log: list[str] = field(default_factory=list)
    ledger: str = ""

    def __post_init__(self) -> None:
        self.ledger = self.ledger or str(self.folder / "ledger")
        self.chance = random.Random(self.seed)
        self.lateness = self.chance.choice([0, 0, 30]) * SECOND
        self.reference = Reference(self.lateness)
        self.now = START
        self.sequence = 0
        self.epoch = 0
        self.batches = 0

    def live(self, epochs: int) -> None:
        """Run the epochs. Raises `AssertionError` with the seed and all steps if a verdict differs from the model."""
        try:
            for _ in range(epochs):
                self.epoch += 1
                kind = self.chance.choice([self.stream, self.stream, self.query_batches, self.backfill])
                self.note(f"epoch {self.epoch}: {kind.__name__}")
                kind()
        except Exception as error:
            steps = "\n".join(self.log)
            raise AssertionError(f"The life of seed {self.seed}: {error}\n{steps}") from error

    def note(self, text: str) -> None:
        self.log.append(text)

    def messages(self) -> list[Message]:
        """Return a batch that repeats many keys, out of order, with several windows."""
        self.now += self.chance.choice([0, 1, 5, 15, 20, 90]) * SECOND
        made = []
        for _ in range(self.chance.randint(1, 30)):
            self.sequence += 1
            key = self.chance.choice(["a", "b", None, *(f"k{at}" for at in range(25))])
            time = self.now + self.chance.randrange(-20, 20) * SECOND
            made.append(Message(key, time, self.sequence, self.chance.choice([20, 20, 60]) * SECOND))
        return made

    def options(self) -> dict[str, Any]:
        return {**OPTIONS, "lateness": f"{self.lateness} microseconds", "parts": self.chance.choice([None, 1, 2, 3])}

    def judge(self, model: Reference, messages: list[Message]) -> Found:
        self.batches += 1
        return model.batch(messages, FAR_FUTURE)

    def frame(self, messages: list[Message]) -> DataFrame:
        rows = [tuple(message)[:4] for message in messages]
        frame = self.spark.createDataFrame(rows, "key string, time long, sequence long, window long")
        return frame.selectExpr("key", "timestamp_micros(time) as time", "sequence", "window")

    # Epochs.

    def backfill(self) -> None:
        """Run a batch outside a query. It joins the ledger, or fails and leaves no trace."""
        messages, joins = self.messages(), self.chance.random() < 0.7
        model = deepcopy(self.reference)
        expected = self.judge(model, messages)
        frame = self.frame(messages)
        self.note(f"  {len(messages)} rows, {'joins' if joins else 'fails'}")
        try:
            with Ledger.open(self.ledger).batch(take_over=True) as ledger:
                checked = detect_duplicates(frame, **self.options(), ledger=ledger)
                self.evaluate(checked, expected)
                if not joins:
                    raise Planned("the output of the batch fails")
        except Planned:
            return
        self.reference = model

    def stream(self) -> None:
        """Run a query over a checked stream. It starts several times and fails after some batches were judged."""
        query = Query(self)
        # Spark refuses to restart a query with a different number of sources.
        united = self.chance.random() < 0.25
        plan: DataFrame | None = None
        for start in range(self.chance.randint(1, 3)):
            if start and self.chance.random() < 0.3:
                query.restore()
                plan = None
            query.add(self.chance.randint(1, 2))
            again = plan is not None and self.chance.random() < 0.4
            if plan is None or not again:
                checked = detect_duplicates(query.source(), **self.options(), ledger=self.ledger)
                plan = self.changed(checked, united=united)
            fails_at = query.some_batch() if self.chance.random() < 0.4 else None
            self.note(f"  start {start}{' of the same plan' if again else ''}, fails at {fails_at}")

            def each(batch: DataFrame, number: int, fails_at: int | None = fails_at) -> None:
                # The union of a plan with itself has each row twice.
                twice = "side" in batch.columns
                for side in ("side = 1", "side = 2") if twice else ("true",):
                    one = batch.filter(side)
                    self.evaluate(one.drop("side") if twice else one, query.expected(number))
                if number == fails_at:
                    raise Planned("the sink fails")

            query.run(plan, each)
            if self.chance.random() < 0.3:
                query.join_aside()
        committed, judged = query.committed, query.judged
        confirmed = None
        if self.chance.random() < 0.5:
            confirmed = Ledger.open(self.ledger).confirm(checkpoint=query.checkpoint)
            assert confirmed == (committed - 1 if committed else None)
        is_known = confirmed == judged - 1 or query.aside_before == judged
        keeps = judged if is_known else judged - 1
        self.note(f"  ends: {committed} committed of {judged} judged, confirmed up to {confirmed}")
        self.reference = query.state_before(keeps)

    def query_batches(self) -> None:
        """Run a query that detects inside foreachBatch."""
        query = Query(self)
        name = f"query {self.epoch}"
        state = 0
        for start in range(self.chance.randint(1, 3)):
            query.add(self.chance.randint(1, 2))
            fails = self.chance.choice([None, "before", "inside", "after"])
            fails_at = query.some_batch()
            self.note(f"  start {start}, fails {fails} at {fails_at}")

            def each(batch: DataFrame, number: int, fails: str | None = fails, fails_at: int = fails_at) -> None:
                nonlocal state
                if fails == "before" and number == fails_at:
                    raise Planned("before the block")
                with Ledger.open(self.ledger).batch(query=name, batch=number) as ledger:
                    checked = detect_duplicates(batch, **self.options(), ledger=ledger)
                    state = number
                    self.evaluate(checked, query.expected(number))
                    if fails == "inside" and number == fails_at:
                        raise Planned("inside the block")
                state = number + 1
                if fails == "after" and number == fails_at:
                    raise Planned("after the block")

            query.run(query.source(), each)
        self.reference = query.state_before(state)

    # The actions and changes that a user may apply to a plan or a batch.

    def changed(self, checked: DataFrame, *, united: bool) -> DataFrame:
        how = "united" if united else self.chance.choice(["plain", "retried"])
        self.note(f"  plan: {how}")
        if how == "united":
            return checked.selectExpr("*", "1 as side").union(checked.selectExpr("*", "2 as side"))
        if how == "retried":
            failed = self.folder / f"failed-{self.epoch}-{len(self.log)}"
            failed.mkdir()
            return checked.mapInArrow(failing_once(str(failed)), checked.schema)
        return checked

    def evaluate(self, checked: DataFrame, expected: Found) -> None:
        """Run several actions on one DataFrame, in any order. Together they evaluate all of it at least once."""
        session = checked.sparkSession
        ways: dict[str, Callable[[], object]] = {
            "collect": lambda: same(verdicts(checked), expected),
            "noop": lambda: checked.write.format("noop").mode("overwrite").save(),
            "sides": lambda: same(
                {**verdicts(checked.filter("is_duplicate")), **verdicts(checked.filter("not is_duplicate"))}, expected
            ),
            "limit": lambda: same_where_found(verdicts(checked.limit(3)), expected),
            "united": lambda: same(verdicts(checked.union(checked.limit(0))), expected),
            "persisted": lambda: self.persisted(checked, expected),
            "thread": lambda: in_thread(session, lambda: same(verdicts(checked), expected)),
            "group": lambda: session.sparkContext.setJobGroup(self.chance.choice(["nightly-etl", "abc"]), "a group"),
        }
        chosen = self.chance.sample(sorted(ways), 2)
        self.note(f"    {', '.join(chosen)}, collect")
        for name in (*chosen, "collect"):
            ways[name]()

    def persisted(self, checked: DataFrame, expected: Found) -> None:
        checked.persist()
        try:
            assert checked.count() == len(expected)
            same(verdicts(checked), expected)
        finally:
            checked.unpersist()


class Query:
    """A query with its own checkpoint, over files that are one batch each."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._folder = life.folder / f"epoch-{life.epoch}"
        self.checkpoint = self._folder / "checkpoint"
        self._stream = Stream(life.spark, self._folder)
        self._files: list[list[Message]] = []
        self._states = [deepcopy(life.reference)]
        self._expected: list[Found] = []
        self._older: int | None = None
        self.judged = 0
        self.aside_before: int | None = None

    @property
    def committed(self) -> int:
        """Return how many batches are committed, according to the checkpoint."""
        commits = self.checkpoint / "commits"
        return 1 + max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) if commits.exists() else 0

    def add(self, files: int) -> None:
        for _ in range(files):
            messages = self._life.messages()
            write_batch(self._stream.source, len(self._files), messages)
            self._files.append(messages)

    def some_batch(self) -> int:
        """Return the number of one of the next batches."""
        return self._life.chance.randrange(self.committed, len(self._files))

    def source(self) -> DataFrame:
        reader = self._life.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._stream.source))

    def expected(self, number: int) -> Found:
        """Return the verdicts of the model on a batch; on a repeated batch, the same again."""
        while len(self._expected) <= number:
            model = deepcopy(self._states[-1])
            self._expected.append(self._life.judge(model, self._files[len(self._expected)]))
            self._states.append(model)
        self.judged = max(self.judged, number + 1)
        return self._expected[number]

    def state_before(self, number: int) -> Reference:
        return self._states[max(0, number)]

    def run(self, frame: DataFrame, each: Callable[[DataFrame, int], None]) -> None:
        """Run until all files are processed or a planned failure occurs."""
        if self._older is None and self.committed:
            shutil.rmtree(self._folder / "older", ignore_errors=True)
            shutil.copytree(self.checkpoint, self._folder / "older")
            self._older = self.committed
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(600), "the query did not end"
        except StreamingQueryException as error:
            if "Planned:" not in str(error):
                raise

    def join_aside(self) -> None:
        """Run a batch beside the stopped query. It joins unless the query stopped in a batch that is not committed."""
        life, messages = self._life, self._life.messages()
        planned = max((int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*")), default=-1)
        state = self.state_before(self.committed)
        model, since = state.aside(), len(state.accepted)
        expected = life.judge(model, messages)
        life.note(f"  an aside with {len(messages)} rows, {self.committed} committed, {planned} planned")
        try:
            with Ledger.open(life.ledger).batch(checkpoint=self.checkpoint) as ledger:
                checked = detect_duplicates(life.frame(messages), **life.options(), ledger=ledger)
                life.evaluate(checked, expected)
        except LedgerInUse:
            assert self.committed <= planned, "refused without need"
            return
        assert self.committed > planned
        assert state.join(model, since)
        # The query cannot go back behind the aside.
        self._older, self.aside_before = None, self.committed

    def restore(self) -> None:
        """Restore an older checkpoint, if there is one. The later batches are judged again, with the same result."""
        if self._older is not None:
            self._life.note(f"  the checkpoint is restored: {self._older} committed")
            shutil.rmtree(self.checkpoint)
            shutil.copytree(self._folder / "older", self.checkpoint)
            self.judged = self._older


def same(found: Found, expected: Found) -> None:
    differing = {m: (found.get(m), expected.get(m)) for m in found.keys() | expected if found.get(m) != expected.get(m)}
    assert not differing, f"found and expected differ: {differing}"


def same_where_found(found: Found, expected: Found) -> None:
    same(found, {message: expected[message] for message in found})


def in_thread(session: SparkSession, work: Callable[[], None]) -> None:
    failures = list[BaseException]()

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = InheritableThread(target=guarded, session=session)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def failing_once(folder: str) -> Any:
    """Return a function for mapInArrow.

    In each partition of each batch, the first attempt fails after judging its rows.
    """

    def fail_once(batches: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        marker = Path(folder) / f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}"
        if not marker.exists():
            marker.touch()
            raise RuntimeError("this attempt fails after its rows were judged")

    return fail_once
