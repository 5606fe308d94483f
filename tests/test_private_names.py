"""Tests use what other packages offer: a test reads private names of the package that it mirrors at most.

Private names are free to change with their package. A test of another package that knew them would have to change too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.suites import TESTS

SOURCE = TESTS.parent / "src" / "oncebus"
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
OF_LIBRARIES = {"_exit", "_expiry", "_fixtureinfo", "_gateway", "_generate_sas_token", "_jdf", "_jsparkSession", "_jvm"}
OF_LIBRARIES |= {"_cbs_authenticator", "_handler", "_mgmt_request_response_with_retry", "_parse_conn_str", "_put_token"}
OF_LIBRARIES |= {"_SSLProtocolTransport", "_decode_decimal128", "_token_status_code"}
OF_LIBRARIES |= {"_hypothesis_internal_use_seed", "_hypothesis_state_machine_class"}
"""Libraries have no public name for these. So `_expiry` sets the clock of an official client wrong."""
ALLOWED = {
    "broker/test_order.py": {"_tables"},
    "broker/test_restart.py": {"_ledger", "_writer"},
    "broker/test_store_thread.py": {"_tables"},
    "broker/test_transactions.py": {"_tables"},
    "broker/test_trouble.py": {"_announce"},
    "programs/dedup/test_dedup.py": {"_EXAMPLE"},
    "programs/serve/stage.py": {"_core"},
    "protocols/http/http_front.py": {"_core"},
    "protocols/portal/test_portal_requests.py": {"_is_closed"},
    "protocols/portal/visitor.py": {"_core"},
    "protocols/servicebus/test_client_transactions.py": {"_core"},
    "protocols/servicebus/test_connections.py": {"_namespace_rules"},
    "protocols/servicebus/test_deleting_receivers.py": {"_hurried", "_looking"},
    "protocols/servicebus/test_receiver_links.py": {"_core"},
    "protocols/servicebus/test_transactions.py": {"_core", "_raw"},
}
"""What still reaches into another package. Nothing may be added."""


def package_of(path: Path, root: Path) -> str:
    """Return the package of a module: a folder, or one of the folders in a folder of packages."""
    *folders, _ = path.relative_to(root).parts
    return ".".join(folders[:2])


def is_private(name: str) -> bool:
    # Notebooks call `_repr_html_`, so it is as public as a name with two underscores.
    return name.startswith("_") and not name.startswith("__") and name not in ("_", "_repr_html_")


@cache
def owners() -> dict[str, set[str]]:
    """Return the packages that define each private name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in defined(ast.parse(path.read_text(encoding="utf-8"))):
            found[name].add(package_of(path, SOURCE))
    return found


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module defines, at any place, or uses of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_own(node):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("cls", "self")


def used(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module imports, or uses of other objects; also as text, as in `setattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not is_own(node):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getattr", "setattr")):
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))


def borrowed(path: Path) -> set[str]:
    """Return the private names in a test module that belong to another package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    private = {name for name in used(tree) if is_private(name)} - OF_TUPLES - OF_LIBRARIES - set(defined(tree))
    mirrored = package_of(path, TESTS)
    return {name for name in private if mirrored not in owners()[name]}


def test_no_private_name_of_another_package() -> None:
    found = {str(path.relative_to(TESTS)): borrowed(path) for path in TESTS.rglob("*.py")}
    assert {file: more for file, names in found.items() if (more := names - ALLOWED.get(file, set()))} == {}


def test_a_private_name_of_another_package_would_be_noticed() -> None:
    assert package_of(TESTS / "protocols" / "http" / "test_x.py", TESTS) == "protocols.http"
    assert package_of(TESTS / "broker" / "test_x.py", TESTS) == "broker"
    assert package_of(TESTS / "programs" / "serve" / "staged" / "test_x.py", TESTS) == "programs.serve"
    tree = ast.parse(
        "from oncebus.broker import _x\nbroker._core.send()\nmonkeypatch.setattr('a.b._limit', 1)\nself._own"
    )
    assert {name for name in used(tree) if is_private(name)} == {"_x", "_core", "_limit"}
    assert "broker" in owners()["_core"]
