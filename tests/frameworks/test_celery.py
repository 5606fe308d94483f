"""A Celery application runs on the broker, with only its broker URL changed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs.serve.clients import Running

from . import venvs

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "celery" / "tasks.py"
GUIDE = HERE.parents[1] / "docs" / "guides" / "celery.md"
PATIENCE = 120.0
CALLS = """
from tasks import add, app
results = [add.delay(number, 1) for number in range(5)]
print([each.get(timeout=100) for each in results])
with app.connection_for_read() as connection:
    print(connection.as_uri().split("@")[0], connection.default_channel.queue_declare("celery").message_count)
"""


def test_the_guide_shows_the_application_that_is_run() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in GUIDE.read_text()


@pytest.fixture(scope="module")
def celery() -> Path:
    return venvs.python(HERE / "celery.txt")


@contextmanager
def worker(python: Path, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a worker for the block. It must end by itself on the signal to stop."""
    words = [str(python), "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "--without-mingle"]
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
        with process:
            try:
                yield
                process.terminate()
                process.wait(PATIENCE)
            finally:
                process.kill()


@pytest.mark.release
def test_a_worker_runs_the_tasks_that_an_application_calls(broker: Running, celery: Path, tmp_path: Path) -> None:
    found = re.search(r"sb://localhost:(\d+);SharedAccessKeyName=(\w+);SharedAccessKey=([^;]+)", broker.out.read_text())
    assert found is not None
    port, rule, key = found.groups()
    http_port = broker.ready().rpartition(":")[2]
    shutil.copy(EXAMPLE, tmp_path)
    environment = venvs.environment(
        BROKER_URL=f"oncebus://{rule}:{key}@localhost:{port}?http={http_port}", RESULTS=f"file://{tmp_path}"
    )
    with worker(celery, tmp_path, environment):
        called = subprocess.run(
            [str(celery), "-c", CALLS], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    assert called.returncode == 0, called.stderr + (tmp_path / "worker.log").read_text()
    assert called.stdout.splitlines() == ["[1, 2, 3, 4, 5]", f"oncebus://{rule}:** 0"]
