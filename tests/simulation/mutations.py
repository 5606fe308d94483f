"""Planted bugs, each one line. `tests/simulation/planting.py` shows how many lives find each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutation(NamedTuple):
    """A bug: in a file below `src/oncebus`, replace a text that occurs once. `world` is whose lives should find it."""

    name: str
    file: str
    old: str
    new: str
    world: str = "broker"


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("the store is ahead of the outbox", "broker/ingest.py", "    some[-1].sync()\n", "    pass\n"),
    Mutation(
        "no fsync of the log",
        "engine/inbox/writer.py",
        "            disk.sync_data(self._active.descriptor)\n",
        "            pass\n",
    ),
    Mutation(
        "folder not synced after a rename",
        "values/disk.py",
        "        raise\n    sync(folder)\n\n\ndef publish_new",
        "        raise\n\n\ndef publish_new",
    ),
    Mutation(
        "folder not synced after a link",
        "values/disk.py",
        "        delete(temporary)\n    sync(folder)\n    return is_free",
        "        delete(temporary)\n    return is_free",
    ),
    Mutation(
        "parent not synced after mkdir", "values/disk.py", "        sync(os.path.dirname(each))\n", "        pass\n"
    ),
    # Truncating before the next append alone is no bug that shows: the failed append has tried it already.
    Mutation(
        "a refused append is not cut off",
        "engine/inbox/writer.py",
        "        disk.truncate(self._active.descriptor, self._end)\n",
        "        pass\n",
    ),
    Mutation(
        "recovery takes a torn frame",
        "engine/inbox/recovery.py",
        "        check_piece(data, offset, frame, shard)",
        "        pass",
    ),
    Mutation(
        "recovery does not cut",
        "engine/inbox/recovery.py",
        "        disk.truncate(descriptor, end)\n",
        "        pass\n",
    ),
    Mutation(
        "refused rows counted as accepted",
        "broker/acceptor.py",
        "            if self.last_commit > before:",
        "            if True:",
    ),
    Mutation(
        "one bad call refuses its neighbours silently",
        "broker/acceptor.py",
        "                    await self._commit([each])",
        "                    self._answer([each], self.last_commit)",
    ),
    Mutation(
        "keys published after their messages",
        "pipeline/batch.py",
        "before=keys.result)",
        "before=None)\n        beside.begin(publish_keys)",
    ),
    Mutation(
        "keys not published at all",
        "pipeline/batch.py",
        "    keys = beside.begin(publish_keys)\n",
        "    keys = beside.begin(lambda: None)\n",
    ),
    Mutation("a late task enters", "pipeline/batch.py", "    refuse_late(folders.drafts, part.of)\n", "    pass\n"),
    Mutation(
        "position moved without its rows",
        "engine/store/entries.py",
        "        if first_commit != position + 1 or last_commit < first_commit:",
        "        if False:",
    ),
    Mutation(
        "position not moved",
        "engine/store/entries.py",
        "        tables.progress.set_position(last_commit)\n",
        "        tables.progress.set_position(position)\n",
    ),
    Mutation(
        "repeated rows of a requeue are taken",
        "engine/store/entries.py",
        "        fresh = _without_repeated(tables, results)\n",
        "        fresh = results\n",
    ),
    Mutation(
        "origins are forgotten too early",
        "engine/store/entries.py",
        "        tables.origins.forget_through(last_commit)\n",
        "        tables.origins.forget_through(1 << 60)\n",
    ),
    Mutation(
        "a requeued message is deleted without an origin",
        "engine/store/requeues.py",
        "    tables.origins.end(copy.entity, copy.sequence, commit, copy.body_file)\n",
        "    pass\n",
    ),
    Mutation(
        "a requeue is repeated although it arrived",
        "engine/store/requeues.py",
        "            if tables.origins.is_taken(copy.entity, copy.sequence):",
        "            if False:",
    ),
    Mutation(
        "a requeue is not repeated after a crash",
        "engine/store/requeues.py",
        "            if tables.origins.is_taken(copy.entity, copy.sequence):",
        "            if True:",
    ),
    Mutation(
        "pending messages are appended again",
        "engine/store/pending.py",
        "            if not any(tables.origins.is_taken(TRANSACTION, each.number) for each in pending):",
        "            if True:",
    ),
    Mutation(
        "pending messages are not kept", "engine/store/pending.py", "    tables.pending.add(pending)\n", "    pass\n"
    ),
    Mutation(
        "pending messages are not resumed",
        "broker/committing.py",
        "        await self._append(pending)\n        self._resumed",
        "        self._resumed",
    ),
    Mutation(
        "resumed before the log was ingested",
        "broker/committing.py",
        "        if not self._progress.has_recovered:",
        "        if False:",
    ),
    Mutation(
        "a settlement does not check its lock",
        "engine/store/locks.py",
        "            return copy if now < copy.locked_until else Outcome.MESSAGE_LOCK_LOST\n",
        "            return copy\n",
    ),
    Mutation(
        "a token can be used twice",
        "engine/store/locks.py",
        "            del known[settlement.token]\n",
        "            pass\n",
    ),
    Mutation(
        "completed messages stay",
        "engine/store/locks.py",
        "        complete(tables, completed)\n        return outcomes",
        "        return outcomes",
    ),
    Mutation(
        "deleted entities leave their messages",
        "broker/catalogues.py",
        "            store.entities.delete(sorted(entities), appended)\n",
        "            pass\n",
    ),
    Mutation(
        "the catalogue takes effect before it is durable",
        "broker/catalogues.py",
        "            await self._threads.run(self.versions.publish, after)\n",
        "            self._threads.run(self.versions.publish, after)\n",
    ),
    Mutation(
        "incomplete entries of a lost query stay",
        "engine/outbox/outbox.py",
        "                    self._delete(part)\n            drafts",
        "                    pass\n            drafts",
    ),
    Mutation(
        "drafts of a lost query stay",
        "engine/outbox/outbox.py",
        "            self._delete_drafts()\n            complete",
        "            complete",
    ),
    Mutation("an incomplete entry counts as complete", "engine/outbox/outbox.py", "if count == entry[2]]", "if count]"),
    Mutation(
        "stamps go back with the clock",
        "broker/clock.py",
        "        self.last = max(self.last, last)\n        self._steady",
        "        self._steady",
    ),
    Mutation(
        "sequence numbers are given again",
        "broker/core.py",
        "[(mark.entity, mark.partition, mark.sequence) for mark in files.",
        "[(mark.entity, mark.partition, 0) for mark in files.",
    ),
    Mutation(
        "an own claim is taken for another's",
        "ledger/object_storage.py",
        "return self._content(name) == content",
        "return False",
        "ledger",
    ),
    Mutation(
        "another's claim is taken for an own one",
        "ledger/object_storage.py",
        "return self._content(name) == content",
        "return True",
        "ledger",
    ),
    Mutation(
        "a put whose answer got lost is not repeated",
        "ledger/object_storage.py",
        "if attempt == _ATTEMPTS or",
        "if True or",
        "ledger",
    ),
    Mutation(
        "a folder is listed once",
        "ledger/storage.py",
        "    found = scan()\n    while True:",
        "    return scan()\n    while True:",
        "ledger",
    ),
    Mutation(
        "an attempt that was overtaken goes on",
        "ledger/task_ledger.py",
        "        if newest is not None and generation.is_behind(newest):",
        "        if False:",
        "ledger",
    ),
)


def count(mutation: Mutation, source: Path = ROOT / "src") -> int:
    """Return how often the text of a mutation occurs in its file."""
    return (source / "oncebus" / mutation.file).read_text().count(mutation.old)


def plant(mutation: Mutation, source: Path) -> None:
    """Put a bug into a copy of the source."""
    path = source / "oncebus" / mutation.file
    path.write_text(path.read_text().replace(mutation.old, mutation.new))
