from __future__ import annotations

import base64
import json
import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncebus.model.access import ROOT_RULE, KeyFile, KeyFileError, Right, WhichKey
from oncebus.values import disk


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    keys = KeyFile(tmp_path / "data" / "keys.json")
    assert keys.create()
    return keys


def test_a_new_file_has_the_default_rule_and_only_its_owner_can_read_it(file: KeyFile) -> None:
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    (rule,) = file.rules()
    assert (rule.name, rule.rights) == (ROOT_RULE, frozenset(Right))
    assert rule.primary_key != rule.secondary_key
    for key in (rule.primary_key, rule.secondary_key):
        assert len(base64.b64decode(key, validate=True)) == 32


def test_the_umask_does_not_widen_or_narrow_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keys = KeyFile(tmp_path / "keys.json")
        keys.create()
        keys.add("more", [Right.SEND])
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_an_existing_file_is_left_alone(file: KeyFile) -> None:
    before = file.path.read_bytes()
    assert not file.create()
    assert file.path.read_bytes() == before


def test_a_process_that_loses_the_race_to_create_the_file_uses_the_winners_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = KeyFile(tmp_path / "keys.json"), KeyFile(tmp_path / "keys.json")
    link = disk.link

    def overtaken(path: str, target: str) -> None:
        monkeypatch.setattr(disk, "link", link)
        assert early.create()
        link(path, target)

    monkeypatch.setattr(disk, "link", overtaken)
    assert not late.create()
    assert late.rules() == early.rules()
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_a_writer_that_dies_leaves_the_file_as_it_was(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyFileError, match=r"cannot be changed: No space left on device\."):
        file.rotate(ROOT_RULE, WhichKey.PRIMARY)
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o644, 0o602])
def test_a_file_that_others_can_access_is_refused_with_the_fix(file: KeyFile, mode: int) -> None:
    file.rules()
    file.path.chmod(mode)
    expected = f"Key file '{file.path}' is open to other users (mode {mode:04o}). Run: chmod 600 '{file.path}'"
    for keys in (file, KeyFile(file.path)):
        with pytest.raises(KeyFileError) as caught:
            keys.rules()
        assert str(caught.value) == expected
    with pytest.raises(KeyFileError):
        file.add("more", [Right.SEND])
    file.path.chmod(0o600)
    assert len(file.rules()) == 1


def test_a_file_of_another_user_is_refused(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(KeyFileError, match=r"belongs to user .* Run: chown 4242"):
        file.rules()


def test_rules_are_added_rotated_and_removed(file: KeyFile) -> None:
    added = file.add("sender", [Right.SEND])
    assert file.rule("sender") == added
    rotated = file.rotate("sender", WhichKey.SECONDARY)
    assert rotated.primary_key == added.primary_key
    assert rotated.secondary_key != added.secondary_key
    assert KeyFile(file.path).rule("sender") == rotated
    file.remove("sender")
    assert [rule.name for rule in file.rules()] == [ROOT_RULE]


def test_changes_by_another_process_are_seen(file: KeyFile) -> None:
    before = file.rule(ROOT_RULE)
    KeyFile(file.path).rotate(ROOT_RULE, WhichKey.PRIMARY)
    assert file.rule(ROOT_RULE).primary_key != before.primary_key


def test_no_concurrent_change_is_lost(file: KeyFile) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: KeyFile(file.path).add(f"rule{n}", [Right.SEND]), range(8)))
    assert {rule.name for rule in file.rules()} == {ROOT_RULE, *(f"rule{n}" for n in range(8))}


def test_impossible_changes_are_refused(file: KeyFile) -> None:
    with pytest.raises(KeyFileError, match=r"'nobody' is not in .* It contains RootManageSharedAccessKey"):
        file.rotate("nobody", WhichKey.PRIMARY)
    with pytest.raises(KeyFileError, match="'nobody' is not in"):
        file.remove("nobody")
    with pytest.raises(KeyFileError, match="already exists"):
        file.add(ROOT_RULE, [Right.SEND])
    with pytest.raises(KeyFileError, match="the last one with Manage"):
        file.remove(ROOT_RULE)
    for number in range(11):
        file.add(f"rule{number}", [Right.SEND])
    with pytest.raises(KeyFileError, match="already has 12 authorization rules"):
        file.add("another", [Right.SEND])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json SECRET",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format": 2, "rules": []}',
        b'{"format": 1, "rules": []}',
        b'{"format": 1, "rules": [{"name": "a", "rights": ["Send"], "primary": "SECRET"}]}',
        b'{"format": 1, "rules": [{"name": "a", "rights": ["Fly"], "primary": "SECRET", "secondary": "b"}]}',
        b'{"format": 1, "rules": [{"name": "a", "rights": ["Send"], "primary": "SECRET;", "secondary": "b"}]}',
        b'{"format": 1, "rules": [{"name": "a", "rights": ["Send"], "primary": 7, "secondary": "b"}]}',
        b'{"format": 1, "rules": ['
        + b",".join([b'{"name":"a","rights":["Send"],"primary":"a","secondary":"b"}'] * 2)
        + b"]}",
        b"[" * 100_000,
        b" " * (1 << 20) + b" ",
    ],
)
def test_a_damaged_file_is_refused_and_not_shown(file: KeyFile, content: bytes) -> None:
    file.path.write_bytes(content)
    with pytest.raises(KeyFileError, match=r"is damaged\. Restore it, or delete it") as caught:
        file.rules()
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_missing_file_and_an_irregular_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot be read: No such file or directory\."):
        KeyFile(tmp_path / "none").rules()
    (tmp_path / "folder").mkdir(mode=0o700)
    with pytest.raises(KeyFileError, match="is not a regular file"):
        KeyFile(tmp_path / "folder").rules()
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="is not a regular file"):
        KeyFile(tmp_path / "pipe").add("more", [Right.SEND])


def test_keys_are_in_the_file_and_nowhere_else(file: KeyFile, caplog: pytest.LogCaptureFixture) -> None:
    rule = file.rules()[0]
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("oncebus").warning("%s %r %s", file, rule, {"rule": rule})
    for key in (rule.primary_key, rule.secondary_key):
        assert key not in caplog.text + repr(file) + repr(vars(file)["_rules"]) + str(rule)
        assert key in json.dumps(json.loads(file.path.read_text()))
