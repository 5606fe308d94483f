from __future__ import annotations

import fcntl
import os
from pathlib import Path

from oncebus.values.locks import is_locked


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"
    assert not is_locked(path)
    with path.open("w") as file, other.open("w"):
        assert not is_locked(path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(path)
        assert not is_locked(other)
        # To look takes nothing away.
        with path.open("w") as rival:
            assert is_locked(path)
            fcntl.flock(file, fcntl.LOCK_UN)
            fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not is_locked(path)


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert not is_locked(tmp_path / "lock", tmp_path / "none")
    inode = os.stat(tmp_path / "lock").st_ino
    (tmp_path / "locks").write_text(f"1: POSIX  ADVISORY  WRITE 12 00:1b:{inode} 0 EOF\n")
    assert not is_locked(tmp_path / "lock", tmp_path / "locks")
