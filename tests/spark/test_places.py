"""The same query on a standalone cluster and through Spark Connect gives the same verdicts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from spark.streams import Stream, expected
from spark.test_streaming import history_of

SCRIPT = Path(__file__).parent / "elsewhere.py"
SPARK_HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Spark daemon for as long as the block lasts."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert time.monotonic() < deadline, f"{text!r} did not appear:\n{log.read_text()[-2000:]}"
        time.sleep(0.1)


def run_elsewhere(how: str, url: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), how, url, str(folder)], stdin=subprocess.DEVNULL, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]


def test_on_a_standalone_cluster(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path / "stream")
    stream.write(history)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--webui-port", "0"]
    classes = "org.apache.spark.deploy"
    with daemon(tmp_path / "master.log", f"{classes}.master.Master", *options, "--port", str(port)):
        wait_for(tmp_path / "master.log", "I have been elected leader")
        worker = [
            f"{classes}.worker.Worker",
            *options,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            str(tmp_path),
            master,
        ]
        with daemon(tmp_path / "one.log", *worker), daemon(tmp_path / "two.log", *worker):
            for log in ("one.log", "two.log"):
                wait_for(tmp_path / log, "Successfully registered with master")
            run_elsewhere("cluster", master, stream.folder)
    assert stream.found() == expected(history)


def test_through_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path / "stream")
    stream.write(history)
    port = free_port()
    server = [
        "org.apache.spark.deploy.SparkSubmit",
        "--master", "local[2]",
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.driver.host=127.0.0.1",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.sql.shuffle.partitions=2",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]  # fmt: skip
    with daemon(tmp_path / "server.log", *server):
        wait_for(tmp_path / "server.log", "Spark Connect server started")
        run_elsewhere("connect", f"sc://127.0.0.1:{port}", stream.folder)
    assert stream.found() == expected(history)
