"""Spark's ports: the settings that keep other users and other machines out.

Spark's driver reads serialised Java objects from its RPC port, and each connection to the port of its Python daemon
forks a process. Both are open to every user of the machine unless Spark is told otherwise.

- On one machine Spark authenticates its own ports with a secret that it makes inside the Java process, so the secret
  is on no command line and in no environment. Its Python workers listen at Unix sockets in a private folder.
- On a cluster the secret is the user's, who has to give it to every machine. A session without it is refused.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable

from pyspark.sql import SparkSession

from oncebus.errors import OncebusError

_AUTHENTICATE = "spark.authenticate"
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
# Linux takes no longer path for a socket; Spark adds a slash, a dot, a UUID and ".sock".
_LONGEST_FOLDER = 107 - 43


class ClusterOpen(OncebusError):
    """Whoever can reach Spark's ports on this cluster can run code there and read messages."""


def is_local(master: str) -> bool:
    """Whether driver and tasks are one process. `local-cluster[…]`, which Spark has for tests, is a cluster."""
    return master == "local" or master.startswith("local[")


def protection(master: str) -> dict[str, str]:
    """The settings for a new session that close its ports to others. None on a cluster, where they are the user's."""
    if not is_local(master):
        return {}
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _AUTHENTICATE: "true",
    }
    # Workers do not authenticate those who connect to a Unix socket: the folder's mode has to keep others out.
    folder = tempfile.mkdtemp(prefix="oncebus-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = folder
    return settings


def check_protection(spark: SparkSession) -> None:
    """Raise `ClusterOpen` unless the session's cluster authenticates and encrypts what its machines say."""
    master = spark.sparkContext.master or ""
    missing = [] if is_local(master) else _missing(lambda name: spark.conf.get(name, "false") or "false")
    if missing:
        raise ClusterOpen(
            f"Spark at '{master}' runs without {' and '.join(missing)}: anyone who can reach its ports can run code "
            "and read messages. Set them to true, and spark.authenticate.secret, in spark-defaults.conf on every "
            "machine; or accept the risk with --insecure-cluster."
        )


def _missing(setting: Callable[[str], str]) -> list[str]:
    missing = [] if setting(_AUTHENTICATE).lower() == "true" else [_AUTHENTICATE]
    if not any(setting(name).lower() == "true" for name in _ENCRYPTION):
        missing.append(_ENCRYPTION[0])
    return missing
