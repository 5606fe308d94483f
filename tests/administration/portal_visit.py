"""A visit to the portal of a real broker, first without a key."""

from __future__ import annotations

import re
import ssl

import httpx

from oncebus.protocols.portal.links import BASE, STAMPED, STATIC, link, static_file
from oncebus.protocols.portal.portal import PAGES
from tests.programs.serve.services import PATIENCE

from .served import Served

_SEAL = re.compile(r'name="seal" value="([0-9a-f]{64})"')


def visit_portal(broker: Served, queue: str) -> None:
    """Check that every visitor sees the form and its styles, and that only a visitor with a key sees the queue."""
    secrets = [queue, broker.root.primary_key, broker.root.secondary_key]
    trusting = ssl.create_default_context(cafile=str(broker.certificate))
    with httpx.Client(base_url=f"https://{broker.host}", verify=trusting, timeout=PATIENCE) as browser:

        def tells_nothing(answer: httpx.Response) -> None:
            # The address contains the requested page, but the text does not.
            content = answer.text + "".join(answer.headers.get_list("set-cookie"))
            assert [secret for secret in secrets if secret in content] == []

        for page, methods in PAGES.items():
            if "GET" in methods:
                answer = browser.get(link(page, path=queue))
                assert answer.status_code in (303, 401), page
                tells_nothing(answer)

        first = browser.get(BASE)
        assert first.status_code == 303
        form = browser.get(first.headers["location"])
        assert form.status_code == 200
        tells_nothing(form)
        assert set(re.findall(r'"(/\$portal/static/[^"]+)"', form.text)) == set(STAMPED.values())
        for name, kind in STATIC.items():
            file = browser.get(STAMPED[name])
            assert (file.status_code, file.headers["content-type"], file.content) == (200, kind, static_file(name))

        def sign_in(text: str) -> httpx.Response:
            seal = _SEAL.search(browser.get(link("sign-in")).text)
            assert seal is not None
            return browser.post(link("sign-in"), data={"seal": seal[1], "connection-string": text})

        refused = sign_in(broker.string.replace(broker.root.primary_key, "wrong"))
        assert refused.status_code == 403
        tells_nothing(refused)
        assert sign_in(broker.string).status_code == 303
        found = browser.get(link(find=queue)).text
        assert re.search(rf'href="/\$portal/entity\?[^"]*path={queue}', found) is not None
