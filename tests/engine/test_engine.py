"""The engine of files: what becomes of its locks if it cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxError, InboxWriter


def test_an_engine_that_cannot_be_opened_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: InboxWriter, position: int) -> None:
        raise InboxError(f"cannot read after {position}")

    with monkeypatch.context() as patch:
        patch.setattr(InboxWriter, "unread_marks", fail)
        with pytest.raises(InboxError, match="cannot read after 0"):
            Engine.files(Folders(tmp_path), 2)
    Engine.files(Folders(tmp_path), 2).close()
