"""Decides whether a key was accepted within its window, as pure functions on numpy arrays."""

from oncebus.detection.decision import judge
from oncebus.detection.forgetting import is_forgotten, remembered, uncancelled
from oncebus.detection.keys import part_of
from oncebus.detection.values import (
    NO_HORIZON,
    NO_SEQUENCE,
    Memories,
    Policy,
    Question,
    Recall,
    Rows,
    Tombstones,
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
    "Tombstones",
    "Verdicts",
    "is_forgotten",
    "judge",
    "part_of",
    "recall_nothing",
    "remembered",
    "uncancelled",
]
