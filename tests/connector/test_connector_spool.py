"""The spool: identical rows when read again, one user at a time, and clear refusals."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from oncebus.connector.deliveries import Deliveries, Known
from oncebus.connector.errors import BadSpool
from oncebus.connector.options import Entity
from oncebus.connector.schema import ARROW_SCHEMA
from oncebus.connector.spool import REMEMBERED, START_AGAIN, Identity, Spool, read_part
from tests.users import as_an_ordinary_user

ENTITY = Entity("orders")


def rows(*numbers: int) -> pa.RecordBatch:
    values = [
        {"body": b"%d" % number, "sequence_number": number, "enqueued_time": datetime.fromtimestamp(number, UTC)}
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(values, ARROW_SCHEMA)


def opened(folder: Path, entity: Entity = ENTITY, patience: float = 0) -> Spool:
    return Spool.open(str(folder / "spool"), entity, "localhost", patience=patience)


def identity(number: int) -> Identity:
    return Identity(number, number * 1_000_000)


def test_a_batch_is_read_again_in_its_parts(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(4, rows(1, 2, 3, 4, 5), parts=2)
    spool.close()
    again = opened(tmp_path)
    assert (again.identity, again.numbers(), again.parts(4)) == (spool.identity, [4], 2)
    parts = [read_part(again.folder, again.identity, 4, part) for part in range(2)]
    assert pa.Table.from_batches(parts).to_pylist() == rows(1, 2, 3, 4, 5).to_pylist()
    assert again.identities(4) == [identity(number) for number in range(1, 6)]
    again.delete(4)
    assert again.numbers() == []
    with pytest.raises(BadSpool, match=r"has no batch 4, which the checkpoint needs: .* In the mode peek_lock, "):
        again.parts(4)
    again.close()


def test_fewer_rows_than_parts(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(0, rows(1), parts=8)
    assert spool.parts(0) == 1
    spool.close()


def test_only_one_process_uses_a_spool(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    with pytest.raises(BadSpool, match="is in use by another query"):
        opened(tmp_path)
    spool.close()
    opened(tmp_path).close()


def test_a_spool_belongs_to_one_entity(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(BadSpool, match="belongs to queue 'orders' at localhost, not to queue 'other' at localhost"):
        opened(tmp_path, Entity("other"))
    opened(tmp_path).close()


def test_a_task_that_does_not_see_the_spool(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(0, rows(1), parts=1)
    for folder, known in ((str(tmp_path), spool.identity), (spool.folder, "another")):
        with pytest.raises(BadSpool, match="is not the driver's spool"):
            read_part(folder, known, 0, 0)
    spool.close()


@contextmanager
def another_user(folder: str) -> Iterator[None]:
    """Take the rights to a folder away for the block."""
    Path(folder).chmod(0)
    try:
        with as_an_ordinary_user():
            yield
    finally:
        Path(folder).chmod(0o700)


def test_a_task_of_another_user(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(0, rows(1), parts=1)
    with another_user(spool.folder), pytest.raises(BadSpool) as raised:
        read_part(spool.folder, spool.identity, 0, 0)
    text = str(raised.value)
    assert f"of the executor may not read the spool '{spool.folder}' on '{os.uname().nodename}'." in text
    assert text.endswith("create the folder beforehand with rights for both.")
    spool.close()


def test_a_spool_that_the_driver_may_not_use_any_more(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(0, rows(1), parts=1)
    spool.save_settling(1, [identity(1)], now=100)
    batch, whole = f"The file '{0:020}.arrow' of the spool '{spool.folder}'", f"The spool '{spool.folder}'"
    settling = f"The file 'settling.json' of the spool '{spool.folder}'"
    calls: list[tuple[str, Callable[[], object]]] = [
        (whole, spool.numbers),
        (batch, lambda: spool.write(0, rows(2), parts=1)),
        (batch, lambda: spool.parts(0)),
        (batch, lambda: spool.identities(0)),
        (batch, lambda: spool.delete(0)),
        (settling, lambda: spool.settling(100)),
        (settling, lambda: spool.save_settling(2, [], now=100)),
    ]
    for what, call in calls:
        with another_user(spool.folder), pytest.raises(BadSpool) as raised:
            call()
        advice = "Correct this, and start the query again: in the mode peek_lock nothing is lost."
        assert str(raised.value) == f"{what} cannot be used: Permission denied. {advice}"
    # Nothing has changed.
    assert (spool.numbers(), spool.identities(0)) == ([0], [identity(1)])
    assert spool.settling(100) == (1, frozenset({identity(1)}))
    spool.close()


@pytest.mark.parametrize("content", [b"", b"not rows" * 50, None])
def test_a_damaged_batch(tmp_path: Path, content: bytes | None) -> None:
    spool = opened(tmp_path)
    spool.write(7, rows(1, 2), parts=1)
    file = Path(spool.folder, f"{7:020}.arrow")
    # None is a file of which a part is missing.
    file.write_bytes(file.read_bytes()[:-500] if content is None else content)
    damaged = file.read_bytes()
    for call in (
        lambda: spool.parts(7),
        lambda: spool.identities(7),
        lambda: read_part(spool.folder, spool.identity, 7, 0),
    ):
        with pytest.raises(BadSpool) as raised:
            call()
        text = str(raised.value)
        assert text.startswith(f"The file '{file.name}' of the spool '{spool.folder}'")
        assert " is damaged: " in text
        assert "start the query again: in the mode peek_lock, its messages come again. " in text
        assert text.endswith(f"If the checkpoint is refused then: {START_AGAIN}")
        assert "\n" not in text
    assert file.read_bytes() == damaged
    spool.close()


def test_every_damaged_byte_of_a_batch_gives_rows_or_a_clear_error(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.write(0, rows(1, 2, 3), parts=1)
    file = Path(spool.folder, f"{0:020}.arrow")
    good = file.read_bytes()
    refused = 0
    for at in range(0, len(good), 7):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x81]) + good[at + 1 :])
        try:
            spool.parts(0)
            spool.identities(0)
            read_part(spool.folder, spool.identity, 0, 0).to_pylist()
        except BadSpool:
            refused += 1
    assert refused > 10
    spool.close()


@pytest.mark.parametrize("content", ["", "[]", '{"finished": 3}', '{"finished": null, "left": []}', '{"left": [[1]]}'])
def test_a_damaged_note_of_messages_to_complete(tmp_path: Path, content: str) -> None:
    spool = opened(tmp_path)
    file = Path(spool.folder, "settling.json")
    file.write_text(content)
    with pytest.raises(BadSpool) as raised:
        spool.settling(0)
    text = str(raised.value)
    assert text.startswith(f"The file 'settling.json' of the spool '{spool.folder}' is damaged: ")
    assert text.endswith("then come again, and detect_duplicates finds them.")
    assert "\n" not in text
    assert file.read_text() == content
    spool.close()


def test_a_task_whose_batch_is_gone(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    with pytest.raises(BadSpool, match=r"^Cannot read batch 7 of the spool '.*' on '.*': No such file or directory\.$"):
        read_part(spool.folder, spool.identity, 7, 0)
    spool.close()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(BadSpool, match="cannot be used: Not a directory"):
        opened(tmp_path)


def test_only_the_owner_reads_a_spool(tmp_path: Path) -> None:
    spool = opened(tmp_path / "made")
    assert Path(spool.folder).stat().st_mode & 0o777 == 0o700
    spool.close()
    # Whoever creates the folder decides. Executors may run as another user.
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "spool").mkdir(mode=0o750)
    opened(tmp_path / "shared").close()
    assert (tmp_path / "shared" / "spool").stat().st_mode & 0o777 == 0o750


def test_a_disk_without_room(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(BadSpool, match="cannot be used: File too large"):
            spool.write(0, rows(*range(1, 100)), parts=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # Nothing is left of the attempt, and the next one succeeds.
    assert sorted(path.name for path in Path(spool.folder).iterdir()) == ["lock", "spool.json"]
    spool.write(0, rows(1), parts=1)
    assert spool.numbers() == [0]
    spool.close()


def test_files_of_somebody_else(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    (Path(spool.folder) / "notes.arrow").write_text("not a batch")
    assert spool.numbers() == []
    spool.close()
    (Path(spool.folder) / "spool.json").write_text("{}")
    # It is free afterwards.
    for _ in range(2):
        with pytest.raises(
            BadSpool,
            match=r"The file 'spool.json' of the spool '.*' is damaged: .* use another folder: in the mode peek_lock, ",
        ):
            opened(tmp_path)


def test_messages_still_to_complete_survive_and_are_forgotten_at_last(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert spool.settling(0) == (0, frozenset())
    spool.save_settling(3, [identity(1)], now=100)
    spool.save_settling(5, [identity(1), identity(2)], now=200)
    spool.close()
    again = opened(tmp_path)
    assert again.settling(200) == (5, frozenset({identity(1), identity(2)}))
    assert again.settling(100 + REMEMBERED) == (5, frozenset({identity(2)}))
    again.close()


def test_what_is_known_about_a_delivery() -> None:
    deliveries = Deliveries([identity(9)])
    assert [deliveries.state_of(identity(number)) for number in (1, 9)] == [Known.NEW, Known.FINISHED]
    for number in (1, 2, 3):
        deliveries.wait(identity(number))
    deliveries.forget(identity(3))
    deliveries.note_spooled(0, [identity(1)])
    deliveries.note_spooled(1, [identity(2)])
    assert [deliveries.state_of(identity(number)) for number in (1, 2, 3)] == [Known.TAKEN, Known.TAKEN, Known.NEW]
    deliveries.finish(1)
    assert [deliveries.state_of(identity(number)) for number in (1, 2)] == [Known.FINISHED, Known.TAKEN]
    assert deliveries.finished == {identity(1), identity(9)}
    deliveries.confirm([identity(1)])
    assert deliveries.state_of(identity(1)) is Known.NEW
    # An entity that is created again counts from 1.
    assert deliveries.state_of(Identity(2, 7)) is Known.NEW
