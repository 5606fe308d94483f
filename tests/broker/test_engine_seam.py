"""The broker sees everything durable through one object: it knows no path, no file and no SQLite."""

from __future__ import annotations

import ast
from pathlib import Path

import oncebus
from oncebus.engine.engine import Engine
from oncebus.engine.inbox import BodyFiles, InboxReader, InboxWriter
from oncebus.engine.outbox import Outbox
from oncebus.model.entities import CatalogueFiles

BROKER = Path(oncebus.__file__).parent / "broker"
OF_FILES = {each.__name__ for each in (BodyFiles, InboxReader, InboxWriter, Outbox, CatalogueFiles)} | {"Folders"}
ABOUT_FILES = {"os", "pathlib", "sqlite3", "shutil", "oncebus.values.disk", "oncebus.engine.folders", "oncebus.ledger"}


def test_the_broker_imports_no_files() -> None:
    found = set()
    for path in BROKER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {(path.name, each.name) for each in node.names if each.name in ABOUT_FILES}
            elif isinstance(node, ast.ImportFrom):
                modules = {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
                found |= {(path.name, each) for each in modules & ABOUT_FILES if each}
                found |= {(path.name, each.name) for each in node.names if each.name in OF_FILES}
    assert found == set()


def test_the_broker_opens_no_store() -> None:
    """It uses the store that the engine has opened."""
    opened = [path.name for path in BROKER.glob("*.py") if "Store.open" in path.read_text()]
    assert opened == []
    assert "Store.open" in Path(Engine.files.__code__.co_filename).read_text()
