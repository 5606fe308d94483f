"""`oncebus backup`, of a broker that runs and of one that is stopped."""

from __future__ import annotations

from pathlib import Path

from .served_broker import Served, served_broker


def test_a_backup_of_a_running_broker_is_a_data_folder(served: Served, tmp_path: Path) -> None:
    served.ok("queue", "create", "--name", "q")
    served.ok("send", "q", "x", "--message-id", "a")
    output = served.ok("backup", tmp_path / "copy")
    assert f"to '{tmp_path / 'copy'}' in " in output
    assert not (served.data / "snapshot").exists()
    served.ok("send", "q", "x", "--message-id", "later")
    assert "exists already" in served.refusal("backup", tmp_path / "copy")
    with served_broker(tmp_path / "copy") as restored:
        assert [each["BrokerProperties"]["MessageId"] for each in restored.json_lines("peek", "q")] == ["a"]
    # The restored broker is stopped now.
    assert restored.ok("backup", tmp_path / "again").startswith("Copied ")
    assert (tmp_path / "again" / "keys.json").read_bytes() == (served.data / "keys.json").read_bytes()


def test_without_a_data_folder_there_is_one_line(served: Served, tmp_path: Path) -> None:
    line = served.refusal("backup", tmp_path / "copy", "--data", tmp_path / "none")
    assert line == f"There is no data folder '{tmp_path / 'none'}'. Give the broker's data folder with --data."
    assert not (tmp_path / "copy").exists()
