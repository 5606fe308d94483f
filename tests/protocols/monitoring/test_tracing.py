"""Whether messages are traced, from the environment."""

from __future__ import annotations

import importlib.util

import pytest

from oncebus.broker.clock import Clock
from oncebus.protocols.monitoring.tracing import TracingError, is_configured, open_tracer

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}


@pytest.mark.parametrize("environment", [ENDPOINT, TRACES, ENDPOINT | {"OTEL_TRACES_EXPORTER": "otlp"}])
def test_an_endpoint_switches_tracing_on(environment: dict[str, str]) -> None:
    assert is_configured(environment)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_SERVICE_NAME": "bus"},
        ENDPOINT | {"OTEL_SDK_DISABLED": "True"},
        TRACES | {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_it_is_off_otherwise(environment: dict[str, str]) -> None:
    assert not is_configured(environment)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "The environment variable OTEL_EXPORTER_OTLP_PROTOCOL has value 'grpc'. Oncebus exports traces with "
            "'http/protobuf' only.",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "The environment variable OTEL_TRACES_EXPORTER has value 'zipkin'. Oncebus exports traces with 'otlp' "
            "only; 'none' switches them off.",
        ),
    ],
)
def test_what_cannot_be_done_is_an_error(more: dict[str, str], text: str) -> None:
    with pytest.raises(TracingError) as raised:
        is_configured(ENDPOINT | more)
    assert str(raised.value) == text


def test_without_the_extra_an_endpoint_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(TracingError) as raised:
        is_configured(ENDPOINT)
    assert str(raised.value) == (
        "The environment variable OTEL_EXPORTER_OTLP_ENDPOINT has value 'http://collector:4318', but OpenTelemetry is "
        "not installed. Run: pip install 'oncebus[otel]'. Or unset the variable."
    )
    assert not is_configured({})


@pytest.mark.parametrize("value", ["many", "0", "100"])
def test_a_bad_value_for_opentelemetry_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    # The default size of an export is 512.
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", value)
    with pytest.raises(TracingError, match=r"^Traces cannot be exported: "):
        open_tracer(ENDPOINT, Clock())
