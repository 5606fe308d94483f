"""Small templates that need very much work are rejected, quickly and in one line."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from oncebus.protocols.management.problems import MOST_PROBLEMS, FileRefused, Problems, member, nearest
from oncebus.protocols.templates import front
from oncebus.protocols.templates.evaluation import BROKEN, Evaluator
from oncebus.protocols.templates.scope import Deployment, StepBudget
from oncebus.protocols.templates.template import plan_template

from .template_scenes import planned, problems, queue, template
from .test_template_front import Deployer, play

TOO_MUCH = "The expressions of the template need too much computation."


def nested(depth: int) -> dict[str, Any]:
    """Return variables that each contain the previous one twice: short texts, but each value is twice as large."""
    inner = {f"v{at}": [f"[variables('v{at - 1}')]"] * 2 for at in range(1, depth + 1)}
    return {"v0": {"a": 1}} | inner


def attacks() -> dict[str, dict[str, Any]]:
    """Return templates that must be rejected, each a few KB."""
    looped = {"name": "loop", "count": 800}
    many = ",".join(["variables('v14')"] * 40)
    compared = ",".join(["equals(variables('v14'), variables('w14'))"] * 40)
    copied = {f"w{at}": [f"[variables('w{at - 1}')]"] * 2 for at in range(1, 15)} | {"w0": {"a": 1}}
    return {
        "doubled in arrays": template(queue("q"), variables=nested(59)),
        "doubled in objects": template(
            queue("q"),
            variables={"v0": 1} | {f"v{n}": dict.fromkeys("ab", f"[variables('v{n - 1}')]") for n in range(1, 60)},
        ),
        "doubled in parameters": template(
            queue("q"),
            parameters={"p0": {"type": "array", "defaultValue": [1]}}
            | {f"p{n}": {"type": "array", "defaultValue": [f"[parameters('p{n - 1}')]"] * 2} for n in range(1, 60)},
        ),
        "used in a loop": template(
            {**queue("q"), "copy": looped, "tags": "[variables('v14')]"}, variables=nested(14)
        ),
        "compared in a loop": template(
            {**queue("q"), "copy": looped, "condition": f"[or({compared}, false())]"}, variables=nested(14) | copied
        ),
        "asked in a loop": template(
            {**queue("q"), "copy": looped, "condition": f"[empty(union({many}))]"}, variables=nested(14)
        ),
        "copied text": template({**queue("q"), "copy": looped, "tags": ["x" * 64] * 1000}),
    }  # fmt: skip


@pytest.mark.parametrize("name", attacks())
def test_a_small_template_that_computes_too_much_is_rejected_in_one_line(name: str) -> None:
    with pytest.raises(FileRefused) as refused:
        planned(attacks()[name])
    reported = [problem for problem in refused.value.problems if problem.text == TOO_MUCH]
    assert len(reported) == 1
    # Another problem is that all copies have the same name.
    assert len(refused.value.problems) <= 2


def test_nothing_is_evaluated_once_the_budget_is_spent() -> None:
    found = Problems()
    evaluator = Evaluator({}, lambda _: None, Deployment(), found, StepBudget(100))
    assert evaluator.value(["[true()]"] * 200, "here")[-1] is BROKEN
    assert evaluator.value("[true()]", "there") is BROKEN
    assert [problem.text for problem in found] == [TOO_MUCH]


def test_a_template_that_takes_too_long_is_rejected() -> None:
    asked = []

    def is_late() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(FileRefused, match=r"The template takes too long to evaluate\."):
        plan_template(template(queue("q", x=[1] * 10_000)), {}, planned(template()).before, 0, is_late=is_late)
    assert len(asked) == 4


def test_a_large_ordinary_template_is_within_the_budget() -> None:
    """It has as many resources as allowed, and reads properties from a table with a row for each."""
    table = [{"name": f"q{at}", "size": 1024, "lock": "PT1M"} for at in range(800)]
    row = "variables('table')[copyIndex()]"
    looped = queue(f"[{row}.name]", maxSizeInMegabytes=f"[{row}.size]", lockDuration=f"[{row}.LOCK]")
    looped |= {
        "name": f"[concat('bus/', {row}.name)]",
        "copy": {"name": "all", "count": "[length(variables('table'))]"},
    }
    assert len(planned(template(looped, variables={"table": table})).after.entities) == 800


def test_many_problems_and_long_names_are_truncated() -> None:
    found = Problems()
    for number in range(2 * MOST_PROBLEMS):
        found.add(str(number), "wrong")
    assert len(list(found)) == MOST_PROBLEMS
    assert len(member("x", "n" * 10_000)) < 100
    assert nearest("quere", ["queue", "q" * 1000]) == "queue"
    assert nearest("q" * 1000, ["q" * 1001]) is None
    given = {f"p{number}": {"value": 1} for number in range(300)}
    with pytest.raises(FileRefused) as refused:
        plan_template(template(queue("q")), given, planned(template()).before, 0)
    assert [problem.text for problem in refused.value.problems] == ["There are 300 parameters; 256 is the limit."]


def test_too_many_variables_are_not_evaluated() -> None:
    variables = {f"v{at}": "[x()]" for at in range(300)}
    reported = problems(template(queue("q"), variables=variables))
    assert reported == {"variables": "There are 300 variables; 256 is the limit."}


def test_templates_have_a_thread_of_their_own_and_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that does not end delays other templates up to their deadlines; everything else goes on."""
    monkeypatch.setattr(front, "DEADLINE_SECONDS", 0)
    ended, names = threading.Event(), []

    def endless(*_: Any, **__: Any) -> Any:
        names.append(threading.current_thread().name)
        assert ended.wait(30)
        raise FileRefused([])

    async def scenario(deployer: Deployer) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(front, "plan_template", endless)
            answer = await deployer.put(template(queue("a")))
        assert (answer.status, answer.json["error"]["code"]) == (400, "InvalidTemplate")
        assert "takes more than" in answer.json["error"]["message"]
        answers = await asyncio.gather(*(deployer.put(template(queue("b"))) for _ in range(10)))
        statuses = [answer.status for answer in answers]
        assert statuses == [400] * (front.MOST_WAITING - 1) + [503] * 3
        assert "too many templates" in answers[-1].body.decode()
        # The rest of the broker is not affected.
        await deployer.broker.change(lambda catalogue, now: catalogue)
        ended.set()
        assert names[0].startswith("templates")

    play(tmp_path, scenario)
