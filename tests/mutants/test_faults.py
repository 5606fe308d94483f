from __future__ import annotations

import ast

from tests.mutants.__main__ import AREAS, SOURCE
from tests.mutants.faults import faults_in

MODULE = '''
"""What it does."""
from typing import Final
Names = dict[str, int]
SIZE: Final = 3

def find(rows, edge):
    """Find it."""
    if rows and edge <= len(rows) - 1:
        rows[edge] += 1
        return rows[edge]
    raise ValueError(f"no row {edge + 1}")
'''


def planted() -> dict[str, str]:
    """Return the module with each fault alone, by the fault."""
    found = {}
    for at in range(len(faults_in(ast.parse(MODULE), "find.py"))):
        tree = ast.parse(MODULE)
        fault = faults_in(tree, "find.py")[at]
        name = str(fault)
        fault.plant()
        compile(tree, "find.py", "exec")
        found[name] = ast.unparse(tree)
    return found


def test_each_fault_changes_one_thing() -> None:
    found = planted()
    assert len(set(found.values())) == len(found)
    assert ast.unparse(ast.parse(MODULE)) not in found.values()
    assert any("edge <= len(rows) - 1  →  edge < len(rows) - 1" in each for each in found)
    assert any("rows[edge] += 1  →  pass" in each for each in found)
    assert any("return rows[edge]  →  return None" in each for each in found)
    assert any("if True" in each for each in found.values())
    assert any("len(rows) - 2" in each for each in found.values())


def test_texts_types_and_imports_stay() -> None:
    for module in planted().values():
        assert '"""Find it."""' in module
        assert "dict[str, int]" in module
        assert "raise" not in module or "no row {edge + 1}" in module


def test_every_area_has_modules_and_tests() -> None:
    for area in AREAS.values():
        assert all((SOURCE / each).exists() for each in area.modules)
        assert all((SOURCE.parents[1] / each).exists() for tests in area.tests for each in tests)
