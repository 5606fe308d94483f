"""Cuts of power on a real file system: whatever the broker answered before the cut is there after it.

The data folder lies on ext4 on a loop device, mounted so that the kernel writes nothing by itself for minutes. At a
random moment everything stops, and the device is copied: the copy has only what was synced. A broker starts on it, and
the test looks for every message whose send was answered, with peeks: a receiver could buffer messages unseen.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs.serve.clients import Client, Running, all_end, everything_below, kill_everything
from tests.programs.serve.programs import until

_MEGABYTES = 512
_CUTS = 6
_SENDERS = 4
_OPTIONS = "loop,commit=300,noauto_da_alloc"
_ENTITIES = [{"type": "queue", "name": "q", "requiresDuplicateDetection": True}]


def command(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert not done.returncode, f"{' '.join(map(str, words))}: {done.stderr.strip()} (this test needs root)"


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    command("mount", "-o", _OPTIONS, image, folder)
    try:
        yield folder
    finally:
        # The kernel may need a moment for the files of processes that have just ended.
        until(lambda: not subprocess.run(["umount", folder], capture_output=True, check=False).returncode, "unmounted")


@contextmanager
def serving(folder: Path, name: str, data: Path) -> Iterator[tuple[Running, Client]]:
    (folder / "entities.json").write_text(json.dumps(_ENTITIES))
    words: list[str | Path] = ["serve", "--http-port", "0", "--amqp-port", "0", "--master", "local[1]", "--data", data]
    running = Running(folder, name, [*words, "--entities", folder / "entities.json"])
    try:
        yield running, Client(running.ready(), data)
    finally:
        kill_everything(running)


class Sender(threading.Thread):
    """Sends one message after another, and remembers the ids of those that were answered."""

    def __init__(self, name: str, client: Client, ended: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.answered: list[str] = []
        self._client, self._ended = client, ended

    def run(self) -> None:
        for number in range(1 << 30):
            if self._ended.is_set():
                return
            identity = f"{self.name}-{number}"
            try:
                properties = {"BrokerProperties": json.dumps({"MessageId": identity})}
                status, _, _ = self._client.exchange("POST", "/q/messages", b"body", properties)
            except OSError:
                return
            if status == 201:
                self.answered.append(identity)


def peeked(client: Client) -> list[str]:
    """Return the ids of all messages in the queue."""
    found: list[str] = []
    start: int | None = 0
    while start is not None:
        status, _, body = client.exchange("GET", f"/q/$messages?from={start}&count=100")
        assert status == 200, body
        page = json.loads(body)
        found += [each["BrokerProperties"]["MessageId"] for each in page["messages"]]
        start = page["next"]
    return found


@pytest.mark.torture
def test_answers_survive_cuts_of_power(tmp_path: Path, seed: int) -> None:
    chance, checked = random.Random(seed), 0
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(_MEGABYTES << 20)
    command("mkfs.ext4", "-q", image)
    for cut in range(_CUTS):
        ended, copy = threading.Event(), tmp_path / f"copy-{cut}"
        with (
            mounted(image, tmp_path / f"before-{cut}") as folder,
            serving(tmp_path, f"before-{cut}", folder / "data") as (running, client),
        ):
            senders = [Sender(f"{cut}-{number}", client, ended) for number in range(_SENDERS)]
            for sender in senders:
                sender.start()
            ended.wait(chance.uniform(1.0, 6.0))
            processes = [running.process.pid, *everything_below(running.process.pid)]
            for pid in processes:
                os.kill(pid, signal.SIGSTOP)
            # An answer that arrives from here on was sent before.
            shutil.copyfile(image, copy)
            ended.set()
            for pid in processes:
                os.kill(pid, signal.SIGKILL)
            running.process.wait()
            all_end(processes[1:], "everything has ended")
            for sender in senders:
                sender.join(60)
        answered = [identity for sender in senders for identity in sender.answered]
        with (
            mounted(copy, tmp_path / f"after-{cut}") as folder,
            serving(tmp_path, f"after-{cut}", folder / "data") as (_, client),
        ):
            there = peeked(client)
        assert len(set(there)) == len(there), "a message came twice"
        missing = set(answered) - set(there)
        assert not missing, f"cut {cut} of seed {seed}: {len(missing)} of {len(answered)} answered messages are gone"
        checked += len(answered)
        # Go on from what the cut left.
        copy.replace(image)
    print(f"seed {seed}: {_CUTS} cuts of power, {checked} answers checked, nothing lost")
    assert checked > 100
