"""Decides whether to trace messages, from OpenTelemetry's own environment variables.

OpenTelemetry is imported only if it is configured: this module does not import it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncebus.broker.clock import Clock
from oncebus.values.errors import OncebusError

if TYPE_CHECKING:
    from oncebus.protocols.monitoring.spans import Spans

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
EXPORTERS = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class TracingError(OncebusError):
    """Tracing is configured, but cannot work."""


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether to trace. Raises `TracingError` if that is configured but impossible."""
    variable = next((name for name in ENDPOINTS if environment.get(name, "").strip()), None)
    if variable is None or environment.get(DISABLED, "").strip().lower() == "true":
        return False
    exporters = environment.get(EXPORTERS, "").strip().lower()
    if exporters == "none":
        return False
    if exporters not in ("", "otlp"):
        raise TracingError(
            f"The environment variable {EXPORTERS} has value '{exporters}'. Oncebus exports traces with 'otlp' only; "
            "'none' switches them off."
        )
    chosen = next((name for name in PROTOCOLS if environment.get(name, "").strip()), None)
    if chosen is not None and environment[chosen].strip() != PROTOCOL:
        raise TracingError(
            f"The environment variable {chosen} has value '{environment[chosen]}'. Oncebus exports traces with "
            f"'{PROTOCOL}' only."
        )
    if not _is_installed():
        raise TracingError(
            f"The environment variable {variable} has value '{environment[variable]}', but OpenTelemetry is not "
            "installed. Run: pip install 'oncebus[otel]'. Or unset the variable."
        )
    return True


def open_tracer(environment: Mapping[str, str], clock: Clock) -> Spans | None:
    """Return a tracer that exports spans; None unless the environment asks for it. Raises `TracingError`.

    OpenTelemetry itself reads the variables of the process.
    """
    if not is_configured(environment):
        return None
    from oncebus.protocols.monitoring.span_export import open_export
    from oncebus.protocols.monitoring.spans import Spans

    return Spans(open_export(), clock)


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        # A package above it is missing.
        return False
