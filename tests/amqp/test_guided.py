"""Coverage-guided fuzzing of the engine and the codec: a million inputs, or ten times AMQP_FUZZ_INPUTS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INPUTS = os.environ.get("AMQP_FUZZ_INPUTS", "100000")
SECONDS_EACH = 5
"""Seconds after which an input counts as a hang."""
MEGABYTES = 600
"""Megabytes for the whole run. The fuzzer itself takes about 150 MB."""


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 11))
def test_no_input_crashes_hangs_or_grows(tmp_path: Path, seed: int) -> None:
    options = [
        f"-seed={seed}",
        f"-atheris_runs={INPUTS}",
        "-max_len=4096",
        f"-timeout={SECONDS_EACH}",
        f"-rss_limit_mb={MEGABYTES}",
    ]
    words = [
        sys.executable,
        "-m",
        "tests.amqp.guided",
        str(tmp_path / "corpus"),
        *options,
        f"-artifact_prefix={tmp_path}/",
    ]
    # Through a shell: libFuzzer limits the peak of its memory, and a process inherits the peak of the one that starts
    # it, which may have run tests that needed more.
    words = ["sh", "-c", '"$@"; exit $?', "sh", *words]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    output = (done.stdout + done.stderr).splitlines()
    print("\n".join(output[-5:]))
    assert done.returncode == 0, "\n".join(output[-60:])
