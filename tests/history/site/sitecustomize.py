"""Gives each Python process of a service the clock that the file named by HISTORY_CLOCK says, as on one machine.

HISTORY_IDLE_SECONDS is the idle time-out of AMQP.

Python imports this by itself where its folder is on PYTHONPATH. The Java part of Spark keeps the true clock: nothing
that is written there has a time in it that the broker reads.
"""

import importlib.util
import os
import time
from pathlib import Path

_file = os.environ.get("HISTORY_CLOCK")
if _file:
    _spec = importlib.util.spec_from_file_location(
        "wrong_clock", Path(__file__).parents[2] / "programs" / "serve" / "wrong_clock.py"
    )
    assert _spec is not None
    assert _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    _clock = _module.WrongClock(Path(_file))
    time.time_ns, time.time = _clock.time_ns, _clock.time

_seconds = os.environ.get("HISTORY_IDLE_SECONDS")
if _seconds:
    from oncebus.amqp import limits

    limits.IDLE_SECONDS = float(_seconds)
