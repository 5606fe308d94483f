"""A Celery application on Oncebus. Start a worker with: celery -A tasks worker"""

import os

from celery import Celery

import oncebus.celery  # noqa: F401 (adds broker URLs that start with oncebus://)

app = Celery("tasks", broker=os.environ["BROKER_URL"], backend=os.environ["RESULTS"])


@app.task
def add(x: int, y: int) -> int:
    """Return the sum."""
    return x + y
