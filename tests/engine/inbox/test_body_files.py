from __future__ import annotations

import os
import random
import resource
from pathlib import Path

import pytest

from oncebus.engine.inbox import BodyFiles, InboxDamaged, InboxError, InboxFull


def test_a_body_is_read_as_it_was_written(tmp_path: Path) -> None:
    body_files = BodyFiles(tmp_path / "bodies")
    body = random.Random(1).randbytes(200_000)
    name = body_files.write(body)
    assert bytes(body_files.read(name)) == body
    assert body_files.write(memoryview(b""), "given-name_1") == "given-name_1"
    assert bytes(body_files.read("given-name_1")) == b""
    kept = body_files.read(name)
    body_files.delete([name, "never-there"])
    assert bytes(kept) == body
    with pytest.raises(FileNotFoundError):
        body_files.read(name)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".tmp-1", "a" * 129, "a\n"])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InboxError, match="Body file name"):
        BodyFiles(tmp_path).write(b"", name)


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    body_files = BodyFiles(tmp_path)
    path = tmp_path / body_files.write(b"some body", "one")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InboxDamaged, match=str(path)):
            body_files.read("one")
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(InboxDamaged, match=str(path)):
            body_files.read("one")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(InboxFull, match="File too large"):
            BodyFiles(tmp_path).write(b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_files_are_listed_and_those_of_a_dead_writer_are_deleted(tmp_path: Path) -> None:
    nowhere = BodyFiles(tmp_path / "none")
    nowhere.delete_unfinished()
    assert nowhere.names() == []
    body_files = BodyFiles(tmp_path)
    for name in ("one", "two"):
        body_files.write(b"x", name)
    for name in (".tmp-1", "no.body"):
        (tmp_path / name).touch()
    assert sorted(body_files.names()) == ["one", "two"]
    body_files.delete_unfinished()
    assert sorted(os.listdir(tmp_path)) == ["no.body", "one", "two"]
