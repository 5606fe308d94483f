"""`python -m abuse.judge DATA`: detection and routing over a data folder, without Spark, until standard input ends."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from oncebus.engine.folders import Folders
from oncebus.pipeline.driver import LocalDriver
from tests.broker.in_process import SHARDS


def main() -> None:
    folders, ended = Folders(Path(sys.argv[1])), threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    # The gateway creates the data folder.
    while not folders.inbox.exists():
        if ended.is_set():
            return
        time.sleep(0.01)
    pipeline = LocalDriver(folders, shards=SHARDS)
    while not ended.is_set():
        if not pipeline.step():
            ended.wait(0.005)


if __name__ == "__main__":
    main()
