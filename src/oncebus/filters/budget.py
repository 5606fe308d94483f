"""A limit on the cost of evaluating rules on one message.

The cost is counted in steps and not in time, because a replay must have the same result. A step is roughly the work for
one character, a few nanoseconds. Only work whose size the sender of the message chooses is charged: the number of rules
and the length of their texts have limits of their own.
"""

from __future__ import annotations

from oncebus.filters.errors import EvaluationFailure

MOST_STEPS_OF_A_RULE = 4_000_000
"""The limit for one filter or one action on one message."""

MOST_STEPS_OF_A_MESSAGE = 32_000_000
"""The limit for all rules of all subscriptions on one message."""


class Budget:
    """The steps left for one message. All rules that are evaluated on it share one budget."""

    __slots__ = ("_of_message", "_of_rule")

    def __init__(self) -> None:
        self._of_message = MOST_STEPS_OF_A_MESSAGE
        self._of_rule = MOST_STEPS_OF_A_RULE

    def start_rule(self) -> None:
        """Reset the limit per rule for the next filter or action."""
        self._of_rule = MOST_STEPS_OF_A_RULE

    def spend(self, steps: int) -> None:
        """Charge for work before it is done. Raises `EvaluationFailure` and charges nothing if the budget is too small.

        The caller must not do the work in that case.
        """
        if steps > self._of_rule:
            raise EvaluationFailure(
                f"it needs more than {MOST_STEPS_OF_A_RULE:,} steps on this message, because its values or patterns "
                "are too long"
            )
        if steps > self._of_message:
            raise EvaluationFailure(
                f"all rules together need more than {MOST_STEPS_OF_A_MESSAGE:,} steps on this message, because its "
                "values or patterns are too long"
            )
        self._of_rule -= steps
        self._of_message -= steps
