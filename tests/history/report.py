"""The figures of a run and, if there are violations, everything needed to examine and replay it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .checker import Violation
from .history import OK
from .model import Model
from .run import Ran

_SHOWN = 40


def figures(ran: Ran, violations: Sequence[Violation]) -> dict[str, int]:
    """Return the counts of operations, faults and violations."""
    model = Model(ran.history)
    settles = [each for each in ran.history.of("settle") if each.outcome == OK]
    return {
        "operations": len(ran.history.operations),
        "not answered": sum(each.outcome == "unknown" for each in ran.history.operations),
        "sent": len(model.attempts),
        "acknowledged": sum(each.is_sure for each in model.attempts.values()),
        "delivered": len(model.arrivals),
        "deliveries": len(model.deliveries),
        "dropped": len(model.drops),
        "completed": sum(each.args["action"] == "complete" for each in settles),
        "cancelled": sum(each.outcome == OK for each in model.cancels.values()),
        "transactions": sum(
            each.args["via"] == "transaction" and each.outcome == OK for each in ran.history.of("send")
        ),
        "faults": sum(ran.hit.values()),
        "violations": len(violations),
    }


def summary(seed: int, numbers: dict[str, int], hit: Counter[str]) -> str:
    """Return the figures as two lines of text."""
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(hit.items()))
    return f"seed {seed}: " + ", ".join(f"{value} {name}" for name, value in numbers.items()) + f"\n  {faults}"


def complaint(ran: Ran, violations: Sequence[Violation]) -> str:
    """Return a text with the violations and the command to replay the run."""
    shown = [f"  {violation}" for violation in violations[:_SHOWN]]
    rest = [f"  … and {len(violations) - _SHOWN} more"] if len(violations) > _SHOWN else []
    return "\n".join(
        [
            f"{len(violations)} violations in the history {ran.path}",
            *shown,
            *rest,
            f"Check it again:  make history FILE={ran.path}",
            f"Play it again:   HISTORY_SEED={ran.history.seed} HISTORY_FAULTS='{ran.history.faults}' make history",
        ]
    )
