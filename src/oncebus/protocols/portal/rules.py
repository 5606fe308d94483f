"""The pages that add and remove rules of a subscription."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Catalogue, Subscription, TrueFilter
from oncebus.protocols.portal.entity_form import place
from oncebus.protocols.portal.entity_head import heading
from oncebus.protocols.portal.fields import Filled, button, form_to, hidden, problems
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import tag
from oncebus.protocols.portal.rule_form import RULE_NAME, described_rule, filter_fields
from oncebus.protocols.portal.visits import Visit, status_of
from oncebus.values.errors import OncebusError


async def show_add(visit: Visit) -> Response:
    """Return the page with the empty form."""
    visit.require(Operation.CREATE_ENTITY, visit.path)
    return await _page(visit, _subscription(visit), Filled({"filter": "sql"}))


async def add(visit: Visit) -> Response:
    """Add the rule that the form describes, or return the form with its errors."""
    visit.require(Operation.CREATE_ENTITY, visit.path)
    owner = _subscription(visit)
    form = Filled(visit.posted.values())
    rule = described_rule(visit.posted, form, visit.posted[RULE_NAME].strip())
    if rule is None:
        return await _page(visit, owner, form, status=400)

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        return catalogue.create_rule(owner.topic, owner.name, rule, now)

    try:
        await visit.desk.broker.change(how)
    except OncebusError as error:
        place(error, form, RULE_NAME)
        return await _page(visit, owner, form, status=status_of(error))
    return visit.go_to(link("entity", path=owner.path), f"The rule '{rule.name}' was added.")


async def remove(visit: Visit) -> Response:
    """Remove the rule that the form names."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    owner, name = _subscription(visit), visit.posted["rule"]
    await visit.desk.broker.change(lambda catalogue, _: catalogue.delete_rule(owner.topic, owner.name, name))
    return visit.go_to(link("entity", path=owner.path), f"The rule '{name}' was removed.")


def _subscription(visit: Visit) -> Subscription:
    entity = visit.entity()
    if not isinstance(entity, Subscription):
        raise BadRequest(f"'{entity.path}' is not a subscription: only those have rules.")
    return entity


async def _page(visit: Visit, owner: Subscription, form: Filled, status: int = 200) -> Response:
    takes_all = next((rule.name for rule in owner.rules if isinstance(rule.filter, TrueFilter)), None)
    explanation = None
    if takes_all is not None:
        text = f"The rule {takes_all} already takes all messages. Remove it if other rules should decide."
        explanation = tag("p", text, class_="notice")
    content = form_to(
        link("entity/rule"),
        visit.seal,
        hidden("path", owner.path),
        problems(form, "Not added"),
        filter_fields(form),
        button("Add the rule", class_="main"),
        class_="wide",
    )
    return visit.page(
        "Add a rule",
        await heading(visit, owner, "entity"),
        tag("h2", "Add a rule"),
        explanation,
        content,
        status=status,
    )
