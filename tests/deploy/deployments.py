"""Finds the files under `deploy/`, and the containers that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("*.yaml"))
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents_in(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def pods_in(path: Path) -> list[dict[str, Any]]:
    """Return the descriptions of the pods in a file of Kubernetes."""
    return [each["spec"]["template"]["spec"] for each in documents_in(path) if "template" in each["spec"]]
