from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncebus.engine.inbox import InboxDamaged, InboxError, InboxFull, InboxReader, InboxWriter, Row
from oncebus.engine.inbox.durable import encode_durable
from oncebus.engine.inbox.frame import encode_frame
from oncebus.engine.inbox.rows import pack
from oncebus.engine.inbox.segment import list_segments, segment_path
from tests.engine.inbox.inboxes import contents, disk_full_after, disk_that_fails_to_sync, row, unsynced
from tests.properties import examples

SEGMENT_BYTES = 5000

# A real file system replaces files safely and therefore slowly; here nothing has to survive a crash of the machine.
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class InboxMachine(RuleBasedStateMachine):
    """An inbox compared with a list of commits, each a list of (position, commit, catalogue, sequence)."""

    @initialize(shards=st.integers(1, 5))
    def begin(self, shards: int) -> None:
        self.resources = ExitStack()
        self.resources.enter_context(unsynced())
        self.folder = Path(tempfile.mkdtemp(dir=QUICK))
        self.shards = shards
        self.model: list[list[tuple[int, ...]]] = []
        self.rows = 0
        self.deleted = 0
        self.reader = InboxReader(self.folder)
        self.writer = InboxWriter.open(self.folder, shards, segment_bytes=SEGMENT_BYTES)

    def teardown(self) -> None:
        self.writer.close()
        self.resources.close()
        shutil.rmtree(self.folder)

    def fresh(self, count: int, keyed: bool) -> list[Row]:
        return [row(1000 * len(self.model) + at, keyed=keyed, body=b"x" * (at * 50)) for at in range(count)]

    def accept(self, rows: list[Row], catalogue: int) -> None:
        commit = len(self.model) + 1
        self.model.append([(self.rows + 1 + at, commit, catalogue, one["sequence"]) for at, one in enumerate(rows)])
        self.rows += len(rows)

    @rule(count=st.integers(1, 12), keyed=st.booleans(), catalogue=st.integers(0, 9))
    def append(self, count: int, keyed: bool, catalogue: int) -> None:
        rows = self.fresh(count, keyed)
        self.accept(rows, catalogue)
        assert self.writer.append(rows, catalogue) == len(self.model)

    @rule(count=st.integers(1, 5), written=st.integers(0, 140))
    def run_out_of_room(self, count: int, written: int) -> None:
        with disk_full_after(written), pytest.raises(InboxFull, match="No space left"):
            self.writer.append(self.fresh(count, True), 1)

    @rule(count=st.integers(1, 5))
    def fail_to_sync(self, count: int) -> None:
        with disk_that_fails_to_sync(), pytest.raises(InboxError, match="Input/output error"):
            self.writer.append(self.fresh(count, True), 1)

    @rule(
        count=st.integers(1, 5),
        written=st.floats(0, 1),
        note=st.sampled_from(["right", "old", "torn", "lost"]),
    )
    def crash(self, count: int, written: float, note: str) -> None:
        """Crash. The last commit may be on disk partly or completely, and the file `durable` may be older."""
        with suppress(InboxError), disk_full_after(0):
            # Leaves nothing, but truncates what an earlier failure left.
            self.writer.append(self.fresh(1, True), 1)
        self.writer.close()
        rows = self.fresh(count, True)
        commit, position = len(self.model) + 1, self.rows + 1
        frame = encode_frame(pack(rows, position, self.shards), commit, 3, position, count, self.shards)
        kept = frame[: round(written * len(frame))]
        with open(segment_path(str(self.folder), list_segments(str(self.folder))[-1]), "ab") as file:
            file.write(kept)
        if kept == frame:
            self.accept(rows, 3)
        durable = self.folder / "durable"
        if note == "lost":
            durable.unlink()
        elif note != "right":
            good = encode_durable(max(0, len(self.model) - 2))
            durable.write_bytes(good if note == "old" else good[:6] + b"torn" + good[10:])
        self.writer = InboxWriter.open(self.folder, self.shards, segment_bytes=SEGMENT_BYTES)

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        # A failed append that was never truncated may have left a complete commit that was not announced.
        self.writer = InboxWriter.open(self.folder, self.shards, segment_bytes=SEGMENT_BYTES)
        while self.writer.last_commit > len(self.model):
            extra = [
                values[3] for values in contents(InboxReader(self.folder), len(self.model) + 1, len(self.model) + 1)
            ]
            self.accept([row(number) for number in extra], 1)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        commit = data.draw(st.integers(self.deleted, len(self.model)))
        before = list_segments(str(self.folder))
        self.writer.delete_below(commit)
        after = list_segments(str(self.folder))
        assert after == [
            first
            for first, following in zip(before, [*before[1:], len(self.model) + 10**9], strict=True)
            if following - 1 > commit
        ]
        self.deleted = max(self.deleted, commit)

    @precondition(lambda self: self.deleted < len(self.model))
    @rule(data=st.data(), is_new=st.booleans())
    def read(self, data: st.DataObject, is_new: bool) -> None:
        first = data.draw(st.integers(self.deleted + 1, len(self.model)))
        last = data.draw(st.integers(first - 1, len(self.model)))
        shards = data.draw(st.none() | st.sets(st.integers(0, self.shards - 1)))
        reader = InboxReader(self.folder) if is_new else self.reader
        found = contents(reader, first, last, None if shards is None else list(shards))
        expected = [values for commit in self.model[first - 1 : last] for values in commit]
        if shards is None:
            assert found == expected
        else:
            others = contents(reader, first, last, [at for at in range(self.shards) if at not in shards])
            assert sorted(found + others) == expected

    @precondition(lambda self: self.deleted < len(self.model))
    @rule(data=st.data(), most=st.integers(0, 40))
    def plan(self, data: st.DataObject, most: int) -> None:
        after = data.draw(st.integers(self.deleted, len(self.model)))
        last = self.reader.plan(after, most, 1 << 60)
        sizes = [len(commit) for commit in self.model[after:]]
        fitting = max([at for at in range(len(sizes) + 1) if sum(sizes[:at]) <= most] + [min(1, len(sizes))])
        assert last == after + fitting

    @invariant()
    def all_accepted_commits_are_announced(self) -> None:
        assert self.writer.last_commit == len(self.model)
        assert self.writer.next_position == self.rows + 1
        assert self.reader.durable() == InboxReader(self.folder).durable() == len(self.model)

    @invariant()
    def unread_commits_have_marks(self) -> None:
        marks = self.writer.unread_marks(self.deleted)
        unread = [values[3] for commit in self.model[self.deleted :] for values in commit]
        assert marks.sequences == ({(7, 0): max(unread)} if unread else {})
        assert marks.time == (1_000_000 + max(unread) if unread else None)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=QUICK) as name, unsynced():
        yield Path(name)


TestInbox = InboxMachine.TestCase
TestInbox.settings = examples(40, stateful_step_count=25)


def test_a_torn_tail_is_truncated_at_every_byte(folder: Path) -> None:
    with InboxWriter.open(folder, 1) as writer:
        writer.append([row(1)], 1)
        before = writer.size
        writer.append([row(2)], 1)
    [path] = folder.glob("*.segment")
    whole = path.read_bytes()
    old_note = encode_durable(1)
    for end in range(before, len(whole)):
        path.write_bytes(whole[:end])
        (folder / "durable").write_bytes(old_note)
        with InboxWriter.open(folder, 1) as writer:
            assert (writer.last_commit, writer.next_position, writer.size) == (1, 2, before)
        assert path.read_bytes() == whole[:before]


@pytest.mark.parametrize("note", ["right", "lost"])
def test_a_changed_byte_is_found_wherever_it_is(folder: Path, note: str) -> None:
    """A writer refuses to truncate the commit that it belongs to."""
    with InboxWriter.open(folder, 2) as writer:
        writer.append([row(1), row(2)], 1)
        first = writer.size
        writer.append([row(3)], 1)
    [path] = folder.glob("*.segment")
    if note == "lost":
        (folder / "durable").unlink()
    whole = path.read_bytes()
    for at in [*range(150), *range(150, first, 11)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(InboxDamaged) as caught:
            contents(InboxReader(folder), 1, 2)
        assert str(path) in str(caught.value)
        if at >= 32:
            assert "offset 32: commit 1 cannot be read" in str(caught.value)
        # The header of a commit says where the next one begins: without it and the file `durable`, the end looks torn.
        if note == "right" or not 32 <= at < 32 + 48 + 16:
            with pytest.raises(InboxDamaged):
                InboxWriter.open(folder, 2)
