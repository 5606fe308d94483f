"""A gateway that traces nothing does not load OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys
from oncebus.broker.clock import Clock
from oncebus.protocols.monitoring import tracing
from oncebus.programs.serve import gateway, service
tracer = tracing.open_tracer(os.environ, Clock())
print(tracer is None, sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def output(**more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | more
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_opentelemetry_is_loaded_only_if_it_is_configured() -> None:
    assert output() == "True []\n"
    configured = output(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert configured.startswith("False ['opentelemetry', ")


def test_without_the_extra_serve_refuses_to_start_with_one_line(tmp_path: Path) -> None:
    # As if OpenTelemetry were not installed.
    script = "import sys; sys.modules['opentelemetry'] = None; from oncebus.programs.cli import main; main()"
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    words = [sys.executable, "-c", script, "serve", "--data", str(tmp_path / "data")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "oncebus: The environment variable OTEL_EXPORTER_OTLP_ENDPOINT has value 'http://collector:4318', but "
        "OpenTelemetry is not installed. Run: pip install 'oncebus[otel]'. Or unset the variable.\n"
    )
    assert not (tmp_path / "data").exists()
