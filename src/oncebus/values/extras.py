"""The extras of the package: what to install if a library is missing that the base package does not bring."""

from __future__ import annotations

from oncebus.values.errors import OncebusError

_SPARK = "PySpark, which a Spark platform has already; elsewhere: pip install 'oncebus[spark]'"
_GATEWAY = "the libraries of the broker: pip install 'oncebus[broker]'"
_NEEDED = {
    "cryptography": _GATEWAY,
    "httptools": _GATEWAY,
    "httpx": _GATEWAY,
    "jwt": _GATEWAY,
    "psycopg": "the driver of PostgreSQL: pip install 'oncebus[postgres]'",
    "py4j": _SPARK,
    "pyspark": _SPARK,
    "starlette": _GATEWAY,
    "uvicorn": _GATEWAY,
    "websockets": _GATEWAY,
}


class ExtraMissing(OncebusError, ImportError):
    """A library is not installed that belongs to an extra."""


def explain_missing(error: ModuleNotFoundError, what: str = "This") -> ModuleNotFoundError | ExtraMissing:
    """Return the error to raise instead: it says what `what` needs. An error about another module stays as it is."""
    needed = _NEEDED.get((error.name or "").partition(".")[0])
    return error if needed is None else ExtraMissing(f"{what} needs {needed}", name=error.name)
