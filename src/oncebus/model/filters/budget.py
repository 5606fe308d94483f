"""A limit on the cost of evaluating rules on one message.

The cost is counted in steps and not in time, because a replay must have the same result. A step is roughly the work for
one character, a few nanoseconds. Only work whose size the sender of the message chooses is charged: the number of rules
and the length of their texts have limits of their own. The budget grows with the message, so that a sender cannot buy
much work with few bytes.
"""

from __future__ import annotations

from oncebus.model.filters.errors import EvaluationFailure

MOST_STEPS_OF_A_RULE = 4_000_000
"""The limit for one filter or one action on a message of any size."""

MOST_STEPS_OF_A_MESSAGE = 32_000_000
"""The limit for all rules of all subscriptions on a message of any size."""

LEAST_STEPS = 50_000
"""The budget of a message, and of each rule on it, apart from the following."""

STEPS_PER_BYTE = 100
"""The steps that each byte of a message adds to both budgets."""

STEPS_PER_RULE = 1000
"""The steps that each rule adds to the budget of a message: enough for a few LIKE with short values."""


def steps_of_messages(messages: int, size: int, rules: int) -> int:
    """Return how many steps rules may take on messages with a total of `size` bytes."""
    return min(
        messages * (LEAST_STEPS + STEPS_PER_RULE * rules) + STEPS_PER_BYTE * size, messages * MOST_STEPS_OF_A_MESSAGE
    )


class Budget:
    """The steps left for one message. All rules that are evaluated on it share one budget."""

    __slots__ = ("_most_of_message", "_most_of_rule", "_of_message", "_of_rule")

    def __init__(self, size: int | None = None, rules: int = 0) -> None:
        """Limit the cost of this many rules on a message of `size` bytes; without a size, of any size."""
        self._most_of_rule, self._most_of_message = MOST_STEPS_OF_A_RULE, MOST_STEPS_OF_A_MESSAGE
        if size is not None:
            self._most_of_rule = min(LEAST_STEPS + STEPS_PER_BYTE * size, MOST_STEPS_OF_A_RULE)
            self._most_of_message = steps_of_messages(1, size, rules)
        self._of_rule, self._of_message = self._most_of_rule, self._most_of_message

    def start_rule(self) -> None:
        """Reset the limit per rule for the next filter or action."""
        self._of_rule = self._most_of_rule

    def spend(self, steps: int) -> None:
        """Charge for work before it is done. Raises `EvaluationFailure` and charges nothing if the budget is too small.

        The caller must not do the work in that case.
        """
        if steps > self._of_rule:
            raise EvaluationFailure(
                f"it needs more than {self._most_of_rule:,} steps on this message, because its values or patterns "
                "are too long"
            )
        if steps > self._of_message:
            raise EvaluationFailure(
                f"all rules together need more than {self._most_of_message:,} steps on this message, because its "
                "values or patterns are too long"
            )
        self._of_rule -= steps
        self._of_message -= steps
