"""What the rules of one message may cost. It is counted in steps, never in time: a replay must end the same way.

A step is about one character looked at, some nanoseconds. Only work whose size the sender of a message chooses is
charged; the number of rules and the size of their texts have limits of their own.
"""

from __future__ import annotations

from oncebus.filters.errors import EvaluationFailure

MOST_STEPS_OF_A_RULE = 4_000_000
"""Of one filter, or of one action, on one message."""

MOST_STEPS_OF_A_MESSAGE = 32_000_000
"""Of all rules of all subscriptions on one message."""


class Budget:
    """The steps that are left for one message. Shared by all rules that are evaluated on it."""

    __slots__ = ("_of_message", "_of_rule")

    def __init__(self) -> None:
        self._of_message = MOST_STEPS_OF_A_MESSAGE
        self._of_rule = MOST_STEPS_OF_A_RULE

    def start_rule(self) -> None:
        """Give the next filter or action its own share."""
        self._of_rule = MOST_STEPS_OF_A_RULE

    def spend(self, steps: int) -> None:
        """Charge for what comes next, or raise EvaluationFailure; then nothing is charged and it must not be done."""
        if steps > self._of_rule:
            raise EvaluationFailure(
                f"it needs more than {MOST_STEPS_OF_A_RULE:,} steps on this message, whose values or patterns are too "
                "long"
            )
        if steps > self._of_message:
            raise EvaluationFailure(
                f"all rules together need more than {MOST_STEPS_OF_A_MESSAGE:,} steps on this message, whose values "
                "or patterns are too long"
            )
        self._of_rule -= steps
        self._of_message -= steps
