"""Apache Artemis as the benchmarks run it: AMQP, a durable queue, and duplicate detection by `_AMQ_DUPL_ID`.

Maven fetches it once, into BENCH_LIBRARIES (by default build/bench/artemis). `missing` says why it cannot be run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.served import PATIENCE, QUEUE, Served

HERE = Path(__file__).parent / "java"
LIBRARIES = Path(os.environ.get("BENCH_LIBRARIES", Path(__file__).parent.parent / "build" / "bench" / "artemis"))
FOR_CLIENTS = {"LOAD_PROPERTY": "_AMQ_DUPL_ID", "LOAD_SETTLED": "1"}
"""It finds duplicates by this property, and answers no dispositions of receivers: it expects them settled."""


def missing() -> str | None:
    """Return why it cannot be run, or None."""
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            return f"Artemis is not measured: it needs {program}."
    return None


def classes() -> str:
    """Return the class path of the broker: its libraries are fetched, and it is compiled, if that was not done yet."""
    libraries, ours = LIBRARIES / "libraries", LIBRARIES / "classes"
    if not libraries.exists():
        fetched = LIBRARIES / "fetched"
        command = ["mvn", "--batch-mode", "--quiet", "--file", "pom.xml", "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={fetched}"], cwd=HERE, check=True)
        fetched.rename(libraries)
    source = HERE / "Artemis.java"
    subprocess.run(["javac", "-cp", f"{libraries}/*", "-d", str(ours), str(source)], check=True)
    return f"{ours}{os.pathsep}{libraries}/*"


@contextlib.contextmanager
def artemis(ids: int) -> Iterator[Served]:
    """A broker over a new data folder that remembers the last `ids` ids; it is stopped at the end."""
    path = classes()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(
        prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK"), ignore_cleanup_errors=True
    ) as data:
        began = time.perf_counter()
        process = subprocess.Popen(
            ["java", "-Xmx2g", "-cp", path, "Artemis", data, str(port), QUEUE, str(ids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        string = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=bench;SharedAccessKey=bench"
        try:
            assert process.stdout.readline() == "READY\n", "Artemis did not start"
            running = Served(process, string, role="broker", for_clients=FOR_CLIENTS)
            running.seconds["ready"] = time.perf_counter() - began
            yield running
            began = time.perf_counter()
            process.stdin.close()
            process.wait(PATIENCE)
            running.seconds["stop"] = time.perf_counter() - began
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
