"""Closes Spark's ports to other users and other machines.

Spark's driver reads serialised Java objects from its RPC port, and each connection to the port of its Python daemon
forks a process. By default both are open to every user of the machine.

- On one machine, Spark authenticates its own ports with a secret that it generates inside the Java process, so the
  secret appears on no command line and in no environment. Its Python workers listen on Unix sockets, in a private
  folder.
- On a cluster, the user configures the secret on every machine. We refuse a session without one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable

from pyspark.sql import SparkSession

from oncebus.values.errors import OncebusError

_AUTHENTICATE = "spark.authenticate"
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
LONGEST_FOLDER = 107 - 43
"""The longest path of the folder for Unix sockets, in bytes.

Linux limits the path of a socket to 107 bytes, and Spark appends a slash, a dot, a UUID and ".sock" to the folder.
"""


class ClusterOpen(OncebusError):
    """The cluster requires no authentication: anyone who reaches its ports can run code there and read messages."""


def is_local(master: str) -> bool:
    """Return whether driver and tasks share one machine. `local-cluster[…]`, Spark's mode for tests, is a cluster."""
    return master == "local" or master.startswith("local[")


def protection(master: str) -> dict[str, str]:
    """Return the Spark settings that protect the ports of a new session.

    Empty on a cluster, which the user configures.
    """
    if not is_local(master):
        return {}
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _AUTHENTICATE: "true",
    }
    # Workers do not authenticate connections to a Unix socket, so the mode of the folder must keep other users out.
    folder = tempfile.mkdtemp(prefix="oncebus-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = folder
    return settings


def check_protection(spark: SparkSession) -> None:
    """Raise `ClusterOpen` unless the session's cluster authenticates and encrypts its own traffic."""
    master = spark.sparkContext.master or ""
    missing = [] if is_local(master) else missing_protection(lambda name: spark.conf.get(name, "false") or "false")
    if missing:
        raise ClusterOpen(
            f"Spark at '{master}' runs without {' and '.join(missing)}: anyone who can reach its ports can run code "
            "and read messages. In spark-defaults.conf on every machine, set these to true and set "
            "spark.authenticate.secret; or accept the risk with --insecure-cluster."
        )


def missing_protection(setting: Callable[[str], str]) -> list[str]:
    """Return the names of the settings that a cluster needs and that are not true."""
    missing = [] if setting(_AUTHENTICATE).lower() == "true" else [_AUTHENTICATE]
    if not any(setting(name).lower() == "true" for name in _ENCRYPTION):
        missing.append(_ENCRYPTION[0])
    return missing
