"""`python -m tests.az AZ`: runs a broker, signs in with the az at that path, and runs all of `tests.az.commands`.

Fails if an answer is not the expected one, or if az has a command of these groups that is not in the list.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from oncebus.model.access import ROOT_RULE, KeyFile
from oncebus.programs.serve.certificate import CERTIFICATE
from tests.az.commands import COMMANDS, Command

TEMPLATE = Path(__file__).with_name("template.json")
PATIENCE = 180.0
# The groups that exist only to hold commands do not count: az prints those with a description of "Manage …" only.
_LISTED = """
import sys
from azure.cli.core import MainCommandsLoader, get_default_cli
for words in (["servicebus", "x"], ["deployment", "group"], ["deployment", "operation", "group"]):
    loader = MainCommandsLoader(get_default_cli())
    print("\\n".join(loader.load_command_table(words)))
"""


def main(az: Path) -> int:
    """Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        data, log = Path(folder, "data"), Path(folder, "log")
        serve = [
            sys.executable,
            "-m",
            "oncebus.programs.cli",
            "serve",
            "--tls",
            "--data",
            str(data),
            "--tier",
            "Premium",
        ]
        with log.open("wb") as output:
            broker = subprocess.Popen([*serve, "--http-port", "0", "--amqps-port", "0"], stdout=output, stderr=output)
        try:
            url = _wait_for(log, broker)
            environment = {
                **os.environ,
                "AZURE_CONFIG_DIR": str(Path(folder, "az")),
                "REQUESTS_CA_BUNDLE": str(data / CERTIFICATE),
                "AZURE_CORE_COLLECT_TELEMETRY": "false",
                "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
            }
            key = KeyFile(data / "keys.json").rule(ROOT_RULE).primary_key
            for words in (
                ["cloud", "register", "--name", "Oncebus", "--endpoint-resource-manager", url],
                ["cloud", "set", "--name", "Oncebus"],
                ["login", "--service-principal", "--username", ROOT_RULE, "--password", key, "--tenant", "adfs"],
            ):
                subprocess.run([az, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
            return _run_all(az, environment)
        finally:
            broker.terminate()
            broker.wait(60)


def _run_all(az: Path, environment: dict[str, str]) -> int:
    failures = [
        f"{line}: {why}" for line, why in ((each.line, _run(az, environment, each)) for each in COMMANDS) if why
    ]
    known = _commands_of(az)
    used = {name for name in known for each in COMMANDS if f"{each.line} ".startswith(f"{name} ")}
    failures += [f"{name}: not in the list" for name in sorted(known - used)]
    refused = sum(each.refused is not None for each in COMMANDS)
    print(
        f"{len(known)} commands of az in {len(COMMANDS)} lines, of which {refused} must be refused: "
        f"{len(failures)} are not as expected."
    )
    print("\n".join(failures))
    return 1 if failures else 0


def _run(az: Path, environment: dict[str, str], command: Command) -> str | None:
    """Return what is wrong with the answer; None if nothing is."""
    words = [str(TEMPLATE) if each == "TEMPLATE" else each for each in shlex.split(command.line)]
    done = subprocess.run([az, *words, "-o", "json"], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    print("refused" if done.returncode else "done   ", command.line, flush=True)
    if command.refused is not None:
        return None if done.returncode and command.refused in done.stderr else f"not refused so: {_short(done)}"
    if done.returncode:
        return _short(done)
    if command.has is None:
        return None
    answer = json.loads(done.stdout)
    return None if _has(answer, command.has) else f"answers {json.dumps(answer)[:500]}"


def _has(answer: Any, part: Any) -> bool:
    """Return whether an answer has a part. A list of names stands for resources that must be in a list."""
    if isinstance(part, dict) and isinstance(answer, list):
        return any(_has(each, part) for each in answer)
    if isinstance(part, dict):
        return isinstance(answer, dict) and all(_has(answer.get(name), value) for name, value in part.items())
    if isinstance(part, list) and isinstance(answer, list) and answer and isinstance(answer[0], dict):
        return {each.get("name") for each in answer} >= set(part)
    return bool(answer == part)


def _commands_of(az: Path) -> set[str]:
    python = az.resolve().with_name("python")
    done = subprocess.run([python, "-c", _LISTED], check=True, capture_output=True, text=True)
    groups = ("servicebus ", "deployment group ", "deployment operation group ")
    return {name for name in done.stdout.splitlines() if name.startswith(groups)}


def _short(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split())[:500]


def _wait_for(log: Path, broker: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and broker.poll() is None:
        found = re.search(r"accepts messages: https://[^:]+:([0-9]+)", log.read_text(encoding="utf-8"))
        if found is not None:
            return f"https://localhost:{found[1]}"
        time.sleep(0.1)
    raise SystemExit(f"The broker did not start:\n{log.read_text(encoding='utf-8')}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
