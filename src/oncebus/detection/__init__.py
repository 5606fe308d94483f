"""Decides whether a key was accepted within its window, as pure functions on numpy arrays."""

from oncebus.detection.decision import (
    NO_HORIZON,
    NO_SEQUENCE,
    Memories,
    Question,
    Recall,
    Rows,
    Verdicts,
    is_forgotten,
    judge,
    recall_nothing,
)
from oncebus.detection.keys import part_of

__all__ = [
    "NO_HORIZON",
    "NO_SEQUENCE",
    "Memories",
    "Question",
    "Recall",
    "Rows",
    "Verdicts",
    "is_forgotten",
    "judge",
    "part_of",
    "recall_nothing",
]
