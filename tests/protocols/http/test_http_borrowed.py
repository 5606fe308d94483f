"""uvicorn still has each name that `oncebus.protocols.http` uses."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from oncebus.protocols.http.borrowed import UvicornProtocol


def made_protocol() -> UvicornProtocol:
    async def make() -> UvicornProtocol:
        config = uvicorn.Config(Starlette(), ws="none", lifespan="off", log_config=None)
        return UvicornProtocol(config=config, server_state=ServerState(), app_state={})

    return asyncio.run(make())


@pytest.mark.parametrize(
    "name", ["connections", "cycle", "flow", "headers", "loop", "parser", "pipeline", "scope", "transport"]
)
def test_a_protocol_of_uvicorn_has(name: str) -> None:
    assert hasattr(made_protocol(), name), f"uvicorn {uvicorn.__version__} no longer has HttpToolsProtocol.{name}"


@pytest.mark.parametrize(
    "name",
    [
        "_should_upgrade",
        "_unset_keepalive_if_required",
        "on_body",
        "on_header",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "on_response_complete",
        "on_url",
        "send_400_response",
    ],
)
def test_the_class_of_uvicorn_has(name: str) -> None:
    assert hasattr(HttpToolsProtocol, name), f"uvicorn {uvicorn.__version__} no longer has HttpToolsProtocol.{name}"


@pytest.mark.parametrize("caller", ["on_headers_complete", "on_body", "on_message_complete"])
def test_uvicorn_asks_whether_to_upgrade(caller: str) -> None:
    names = getattr(HttpToolsProtocol, caller).__code__.co_names
    assert "_should_upgrade" in names, f"{caller} of uvicorn {uvicorn.__version__} no longer calls _should_upgrade"


@pytest.mark.parametrize("name", ["keep_alive", "response_complete"])
def test_a_response_of_uvicorn_has(name: str) -> None:
    names = RequestResponseCycle.__init__.__code__.co_names
    assert name in names, f"uvicorn {uvicorn.__version__} no longer has RequestResponseCycle.{name}"


def test_uvicorn_keeps_whether_writing_is_paused() -> None:
    flow = FlowControl(asyncio.Transport())
    assert flow.write_paused is False, f"uvicorn {uvicorn.__version__} no longer has FlowControl.write_paused"


def test_a_request_has_a_url_once_it_has_begun() -> None:
    protocol = made_protocol()
    protocol.on_message_begin()
    extensions: dict[str, object] = {}
    protocol.extend_scope(extensions)
    assert dict(protocol.scope)["extensions"] is extensions
    assert protocol.url == b"", f"uvicorn {uvicorn.__version__} no longer has HttpToolsProtocol.url"


@pytest.mark.parametrize("name", ["capture_signals", "shutdown", "startup"])
def test_the_server_of_uvicorn_has(name: str) -> None:
    assert inspect.isroutine(getattr(uvicorn.Server, name, None)), (
        f"uvicorn {uvicorn.__version__} no longer has Server.{name}"
    )


@pytest.mark.parametrize("name", ["lifespan", "server_state", "servers", "started"])
def test_a_server_of_uvicorn_sets(name: str) -> None:
    methods = [each for each in vars(uvicorn.Server).values() if inspect.isfunction(each)]
    assert any(name in each.__code__.co_names for each in methods), (
        f"uvicorn {uvicorn.__version__} no longer has Server.{name}"
    )
