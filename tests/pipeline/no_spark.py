"""Replaces Spark sessions by objects that know only their settings and the Python of their workers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from oncebus.pipeline import query


class Session:
    """The object that `SparkSession.builder` returns."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.sparkContext = SimpleNamespace(master=settings["master"], pythonExec=os.environ["PYSPARK_PYTHON"])
        self.conf = settings
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class Builder:
    """Records the settings and the sessions. `defaults` are the user's own Spark settings."""

    def __init__(self) -> None:
        self.made: list[Session] = []
        self.defaults: dict[str, str] = {}
        self._settings: dict[str, str] = {}

    def master(self, url: str) -> Builder:
        self._settings = dict(self.defaults)
        return self.config("master", url)

    def appName(self, name: str) -> Builder:  # noqa: N802
        return self.config("name", name)

    def config(self, name: str, value: str) -> Builder:
        self._settings[name] = value
        return self

    def getOrCreate(self) -> Session:  # noqa: N802
        self.made.append(Session(self._settings))
        return self.made[-1]


def without_spark(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Make the pipeline use this builder."""
    builder = Builder()
    monkeypatch.setattr(query, "SparkSession", SimpleNamespace(builder=builder))
    return builder
