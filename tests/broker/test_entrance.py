"""The entrance: the only way into the inbox, with nothing between the stamp and the append."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import oncebus
from oncebus.broker.entrance import Entrance
from oncebus.engine.inbox import InboxReader
from tests.broker.scenes import Scene, message, play

SOURCE = Path(oncebus.__file__).parent


def appends(tree: ast.AST) -> Iterator[str]:
    """Yield all uses of a method `append` that cannot be that of a list: calls with more or less than one argument.

    A method that is passed on without a call counts as well: it could be called with any arguments.
    """
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "append" and ast.unparse(node.value) != "np":
            call = calls.get(id(node))
            if call is None or len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
                yield ast.unparse(node)


def test_only_the_entrance_appends_to_the_acceptor_and_only_the_acceptor_to_the_inbox() -> None:
    found = {
        (str(path.relative_to(SOURCE)), use)
        for path in SOURCE.rglob("*.py")
        for use in appends(ast.parse(path.read_text()))
    }
    assert found == {("broker/entrance.py", "self.acceptor.append"), ("broker/acceptor.py", "self._inbox.append")}


def test_nothing_can_come_between_the_stamp_and_the_append() -> None:
    (entrance,) = [node for node in ast.walk(ast.parse(inspect.getsource(Entrance))) if isinstance(node, ast.ClassDef)]
    appending = [each for each in entrance.body if list(appends(each))]
    assert [type(each) for each in appending] == [ast.FunctionDef]
    assert [each.name for each in appending if isinstance(each, ast.FunctionDef)] == ["enter"]
    assert not inspect.iscoroutinefunction(Entrance.enter)
    assert not inspect.isgeneratorfunction(Entrance.enter)


def test_the_check_finds_other_ways_in() -> None:
    hidden = (
        "send(writer.append)\nwriter.append(rows, 1)\nwriter.append(rows=rows)\nwriter.append(*both)\nrows.append(row)"
    )
    assert list(appends(ast.parse(hidden))) == ["writer.append"] * 4


def test_rows_of_all_ways_in_have_the_order_of_their_times_and_numbers(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", detects=True)
        await scene.queue("source", forward_to="target")
        due = scene.time.now + 5_000_000
        await scene.send("target", "a", message("later", scheduled=due))
        await scene.send("source", "b", "c")
        await scene.broker.forget("target", "a")
        await scene.rounds()
        scene.time.advance(6)
        await scene.rounds(2)
        await scene.send("target", "d")
        reader = InboxReader(scene.folders.inbox)
        rows = sorted(reader.read(1, scene.broker.pipeline.last_commit))
        times = [row.time for row in rows]
        assert times == sorted(times)
        target = scene.broker.catalogue.queue("target").id
        numbers = [row.sequence for row in rows if row.entity == target]
        assert numbers == list(range(1, 8))

    play(tmp_path, plot)
