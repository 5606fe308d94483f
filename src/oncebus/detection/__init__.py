"""Decides whether a key was accepted within its window, as pure functions on numpy arrays."""

from oncebus.detection.decision import judge
from oncebus.detection.forgetting import find_uncancelled, is_forgotten
from oncebus.detection.keys import part_of
from oncebus.detection.values import (
    NO_HORIZON,
    NO_SEQUENCE,
    Memories,
    Policy,
    Question,
    Recall,
    Rows,
    Verdicts,
    recall_nothing,
)

__all__ = [
    "NO_HORIZON",
    "NO_SEQUENCE",
    "Memories",
    "Policy",
    "Question",
    "Recall",
    "Rows",
    "Verdicts",
    "find_uncancelled",
    "is_forgotten",
    "judge",
    "part_of",
    "recall_nothing",
]
