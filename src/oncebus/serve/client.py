"""Asks a running broker over HTTP, for the commands that show what it knows."""

from __future__ import annotations

import html
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from oncebus.errors import OncebusError

TIMEOUT_SECONDS = 30.0
PAGE = 1000


class NotAnswered(OncebusError):
    """The broker cannot be reached, or refuses."""


def duplicates(
    url: str, token: str, entity: str, *, message_id: str | None = None, since: str | None = None, page: int = PAGE
) -> Iterator[dict[str, Any]]:
    """The record of dropped duplicates of an entity, oldest first, page by page."""
    query = {"message-id": message_id, "since": since, "limit": str(page)}
    after = 0
    while True:
        given = {name: value for name, value in query.items() if value is not None} | {"after": str(after)}
        answer = _get(f"{url}/{quote(entity, safe='/')}/$duplicates?{urlencode(given)}", token)
        yield from answer["duplicates"]
        if answer["next"] is None:
            return
        after = answer["next"]


def _get(url: str, token: str) -> dict[str, Any]:
    request = urllib.request.Request(url, headers={"Authorization": token})
    try:
        with _opener().open(request, timeout=TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode(errors="replace")
        raise NotAnswered(f"The broker at {_base(url)} answers {error.code}: {_detail(said) or error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise NotAnswered(f"The broker at {_base(url)} cannot be reached: {_words(reason)}.") from None
    except ValueError as error:
        raise NotAnswered(f"What answers at {_base(url)} is no broker: {error}.") from None
    if not isinstance(answer, dict) or not {"duplicates", "next"} <= answer.keys():
        raise NotAnswered(f"What answers at {_base(url)} is no broker.")
    return answer


def _opener() -> urllib.request.OpenerDirector:
    # A broker is asked directly: a token is not to be shown to a proxy.
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _base(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _words(reason: object) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__


def _detail(said: str) -> str:
    """What an error's body says, in one line: the text between the tags of its detail."""
    text = said.partition("<Detail>")[2].partition("</Detail>")[0] or said
    return " ".join(html.unescape(text).split())
