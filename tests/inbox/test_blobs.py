from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from oncebus.inbox import Blobs, InboxDamaged, InboxError, InboxFull

HOUR = 3_600_000_000
NOW = 1_000 * HOUR


def written_at(path: Path, time: int) -> None:
    os.utime(path, ns=(time * 1000, time * 1000))


def test_a_body_is_read_as_it_was_written(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    body = os.urandom(200_000)
    name = blobs.write(body)
    assert bytes(blobs.read(name)) == body
    assert blobs.write(memoryview(b""), "given-name_1") == "given-name_1"
    assert bytes(blobs.read("given-name_1")) == b""
    kept = blobs.read(name)
    blobs.delete([name, "never-there"])
    assert bytes(kept) == body
    with pytest.raises(FileNotFoundError):
        blobs.read(name)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".tmp-1", "a" * 129, "a\n"])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InboxError, match="Blob name"):
        Blobs(tmp_path).write(b"", name)


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    path = tmp_path / blobs.write(b"some body", "one")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InboxDamaged, match=str(path)):
            blobs.read("one")
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(InboxDamaged, match=str(path)):
            blobs.read("one")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(InboxFull, match="File too large"):
            Blobs(tmp_path).write(b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_only_old_files_that_nobody_names_are_swept(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert Blobs(tmp_path / "none").sweep(set(), HOUR, NOW) == []
    for name, age in {"used": 2 * HOUR, "unused": 2 * HOUR, "young": HOUR // 2}.items():
        blobs.write(b"x", name)
        written_at(tmp_path / name, NOW - age)
    for name, age in {".tmp-old": 2 * HOUR, ".tmp-young": 0}.items():
        (tmp_path / name).touch()
        written_at(tmp_path / name, NOW - age)
    assert blobs.sweep({"used"}, HOUR, NOW) == ["unused", ".tmp-old"]
    assert sorted(os.listdir(tmp_path)) == [".tmp-young", "used", "young"]
