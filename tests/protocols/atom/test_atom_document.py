"""The bounds on an XML document: on work, not on bytes."""

from __future__ import annotations

import pytest

from oncebus.model.entities import BadRequest
from oncebus.protocols.atom.document import LONGEST_NAME, MOST_DEPTH, MOST_ELEMENTS, read_document


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<a>" + "<b/>" * MOST_ELEMENTS + "</a>", "more than 20000 elements and attributes"),
        ("<a " + " ".join(f'b{at}=""' for at in range(MOST_ELEMENTS)) + "/>", "more than 20000 elements and attr"),
        ("<a>" * (MOST_DEPTH + 1), "nested more than 20 deep"),
        # Each element would keep its own copy of the namespace.
        (f'<a xmlns="{"n" * LONGEST_NAME}">' + "<b/>" * 1000 + "</a>", "A name in the body of the request has more"),
        (f'<a xmlns:n="{"n" * LONGEST_NAME}" n:b=""/>', "A name in the body of the request has more than 1024"),
    ],
    ids=["elements", "attributes", "depth", "namespace", "attribute's namespace"],
)
def test_documents_that_would_cost_much_are_refused(body: str, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        read_document(body.encode())
