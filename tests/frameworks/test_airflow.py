"""Airflow's operators for Service Bus run on the broker, with only their connection changed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs.serve.clients import Client

from . import venvs

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "airflow" / "orders.py"
GUIDE = HERE.parents[1] / "docs" / "guides" / "frameworks.md"
PATIENCE = 200.0
# As a scheduler does that retries the first task.
RUN = "import orders; orders.send.execute({}); orders.send.execute({}); orders.receive.execute({})"


def test_the_guide_shows_the_dag_that_is_run() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in GUIDE.read_text()


@pytest.mark.torture
def test_operators_send_and_receive_and_a_retry_is_dropped(connection: str, client: Client, tmp_path: Path) -> None:
    assert client.put("airflow-orders", {"RequiresDuplicateDetection": "true"})[0] == 201
    shutil.copy(EXAMPLE, tmp_path)
    environment = venvs.environment(
        AIRFLOW_HOME=str(tmp_path / "home"),
        AIRFLOW_CONN_AZURE_SERVICE_BUS_DEFAULT=json.dumps({"conn_type": "azure_service_bus", "schema": connection}),
    )
    python = venvs.python(HERE / "airflow.txt")
    done = subprocess.run(
        [str(python), "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    received = [line for line in done.stdout.splitlines() if line.startswith("Received: ")]
    assert received == ["Received: two books"]
    assert [drop["messageId"] for drop in client.drops("airflow-orders")] == ["order-7"]
