"""The pages that create, change and delete queues, topics and subscriptions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from starlette.responses import Response

from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Catalogue, Entity, Queue, Rule, Subscription, Topic
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, EntityKind, blank, forward_targets
from oncebus.model.entities.names import DEFAULT_RULE
from oncebus.protocols.management import changes
from oncebus.protocols.portal.entity_form import (
    DETECTION,
    NAME,
    TITLES,
    detection_fields,
    entity_fields,
    place,
    read_form,
    tier_refusal,
)
from oncebus.protocols.portal.entity_head import heading
from oncebus.protocols.portal.entity_properties import read_window, written
from oncebus.protocols.portal.fields import Filled, button, form_to, hidden, problems, text_field
from oncebus.protocols.portal.layout import top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, tag
from oncebus.protocols.portal.rule_form import RULE_NAME, described_rule, filter_fields
from oncebus.protocols.portal.visits import Visit, status_of
from oncebus.protocols.portal.wording import counted, moment
from oncebus.values.errors import OncebusError, shown

KINDS: dict[str, EntityKind] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
_VERSION = "version"
_FIRST_RULE = {"filter": "all"}


# Creating


async def show_create(visit: Visit) -> Response:
    """Return the page with the empty form."""
    new = _new(visit)
    visit.require(Operation.CREATE_ENTITY, new.topic if isinstance(new, Subscription) else "")
    return _create_page(visit, new, Filled({**written(new), **_FIRST_RULE}))


async def create(visit: Visit) -> Response:
    """Create the entity that the form describes, or return the form with its errors."""
    base = _new(visit)
    name = visit.posted[NAME].strip()
    base = replace(base, name=name)
    visit.require(Operation.CREATE_ENTITY, base.path)
    form = Filled(visit.posted.values())
    given = read_form(base, visit.posted, form)
    if isinstance(base, Subscription):
        given = replace(given, default_rule=_first_rule(visit, form))
    if not form.is_wrong:
        try:
            await visit.desk.broker.change(changes.create(base, given, partial(_check_forwarding, visit)))
        except OncebusError as error:
            return _create_page(visit, base, form, error)
        return visit.go_to(link("entity", path=base.path), f"The {type(base).__name__.lower()} '{name}' was created.")
    return _create_page(visit, base, form, status=400)


def _new(visit: Visit) -> Entity:
    """Return a new entity of the requested kind, with the service's defaults."""
    kind = visit.query.get("kind", "") or visit.posted["kind"]
    if kind not in KINDS:
        raise BadRequest(f"The kind {shown(kind)} is not one of {', '.join(KINDS)}.")
    return blank(KINDS[kind], "", visit.query.get("topic", "") or visit.posted["topic"])


def _first_rule(visit: Visit, form: Filled) -> Rule | None:
    return described_rule(visit.posted, form, name=visit.posted[RULE_NAME].strip() or DEFAULT_RULE)


def _create_page(
    visit: Visit, new: Entity, form: Filled, error: OncebusError | None = None, status: int = 200
) -> Response:
    if error is not None:
        status = status_of(error)
        place(error, form)
    namespace = visit.desk.catalogue.namespace
    kind = type(new)
    title = f"Create a {kind.__name__.lower()}"
    refusal = tier_refusal(kind, None, namespace)
    if refusal is not None:
        return visit.page(title, top(title, ("Overview", link())), tag("p", refusal, class_="lead"))
    above = [("Overview", link())]
    brought: list[Content] = [hidden("kind", kind.__name__.lower())]
    rules: Content = None
    if isinstance(new, Subscription):
        visit.desk.catalogue.topic(new.topic)
        above.append((new.topic, link("entity", path=new.topic)))
        brought.append(hidden("topic", new.topic))
        rules = filter_fields(form, is_first=True)
    content = form_to(
        link("create"),
        visit.seal,
        brought,
        problems(form, "Not created", TITLES),
        text_field(form, NAME, "Name", required=True, maxlength=260, hint=_NAMES[kind]),
        rules,
        entity_fields(kind, form, namespace, None),
        button("Create", class_="main"),
        class_="wide create",
    )
    return visit.page(title, top(title, *above), content, status=status)


_NAMES: dict[type[Entity], str] = {
    Queue: "Letters, numbers and . - _ ~, in segments with slashes between them.",
    Topic: "Letters, numbers and . - _ ~, in segments with slashes between them.",
    Subscription: "Letters, numbers and . - _ ~.",
}


# Changing


async def show_change(visit: Visit) -> Response:
    """Return the page of an entity's properties: a form if the key permits changes."""
    visit.require(Operation.READ_ENTITY, visit.path)
    entity = visit.entity()
    return await _change_page(visit, entity, Filled({**written(entity), _VERSION: str(entity.updated_at)}))


async def change(visit: Visit) -> Response:
    """Change the entity to what the form describes, or return the form with its errors."""
    visit.require(Operation.UPDATE_ENTITY, visit.path)
    seen = visit.entity()
    # Browsers do not send disabled fields, so the form gets these values again.
    form = Filled({**_fixed(seen), **visit.posted.values(), _VERSION: str(seen.updated_at)})
    if visit.posted[_VERSION] != str(seen.updated_at):
        form.general.append(f"'{seen.path}' was changed meanwhile. Check whether you still want these changes.")
        return await _change_page(visit, seen, form, status=409)
    new = read_form(seen, visit.posted, form).apply_to(seen)
    if form.is_wrong:
        return await _change_page(visit, seen, form, status=400)

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        if catalogue.entity(seen.id) != seen:
            raise BadRequest(f"'{seen.path}' was changed meanwhile. Open the page again.")
        _check_forwarding(visit, seen, new)
        return catalogue.updated(new, now)

    try:
        await visit.desk.broker.change(how)
    except OncebusError as error:
        place(error, form)
        return await _change_page(visit, seen, form, status=status_of(error))
    return visit.go_to(link("entity/change", path=seen.path), "The changes are in effect.")


def _fixed(entity: Entity) -> dict[str, str]:
    shown_as = written(entity)
    return {name: shown_as[name] for name in CHOSEN_AT_CREATION if name in shown_as}


def _check_forwarding(visit: Visit, old: Entity | None, new: Entity) -> None:
    """Raise `AccessRefused` if the entity would forward to one that the key may not manage."""
    visit.desk.guard.require_forwarding(visit.grant, forward_targets(old), forward_targets(new))


async def _change_page(visit: Visit, entity: Entity, form: Filled, status: int = 200) -> Response:
    fields = entity_fields(type(entity), form, visit.desk.catalogue.namespace, entity)
    brought = [hidden("path", entity.path), hidden(_VERSION, form.value(_VERSION))]
    content = form_to(
        link("entity/change"),
        visit.seal,
        brought,
        problems(form, "Not changed", TITLES),
        fields,
        button("Save", class_="main"),
        class_="wide",
    )
    made = ["Made at ", moment(entity.created_at), ", last changed at ", moment(entity.updated_at), "."]
    return visit.page(
        f"Properties of {entity.name}",
        await heading(visit, entity, "change"),
        tag("p", made, class_="hint"),
        content,
        _detection_link(visit, entity),
        status=status,
    )


# Switching on detection: an extension beyond Azure


def _detection_link(visit: Visit, entity: Entity) -> Content:
    if isinstance(entity, Subscription) or entity.requires_duplicate_detection:
        return None
    refusal = tier_refusal(type(entity), DETECTION, visit.desk.catalogue.namespace)
    if refusal is not None or not visit.may(Operation.SWITCH_ON_DETECTION, entity.path):
        return None
    return tag("p", tag("a", "Switch on duplicate detection…", href=link("entity/detection", path=entity.path)))


async def show_detection(visit: Visit) -> Response:
    """Return the page that asks for a window and for confirmation."""
    visit.require(Operation.SWITCH_ON_DETECTION, visit.path)
    entity = visit.entity()
    return await _detection_page(visit, entity, Filled(written(entity)))


async def switch_on_detection(visit: Visit) -> Response:
    """Switch on detection if the name was typed correctly, or return the form with its errors."""
    visit.require(Operation.SWITCH_ON_DETECTION, visit.path)
    entity = visit.entity()
    form = Filled(visit.posted.values())
    if form.value("confirm").strip() != entity.name:
        form.errors["confirm"] = f"The name does not match. Type '{entity.name}' to switch on detection."
    window, key = None, form.value("detection_key").strip() or None
    try:
        window = read_window(visit.posted)
    except OncebusError as error:
        place(error, form)
    if form.is_wrong:
        return await _detection_page(visit, entity, form, status=400)
    try:
        await visit.desk.broker.change(lambda catalogue, now: catalogue.detecting(entity.path, window, now, key))
    except OncebusError as error:
        place(error, form)
        return await _detection_page(visit, entity, form, status=status_of(error))
    return visit.go_to(link("entity/change", path=entity.path), "Duplicates are detected from now on.")


async def _detection_page(visit: Visit, entity: Entity, form: Filled, status: int = 200) -> Response:
    kind = type(entity).__name__.lower()
    content = form_to(
        link("entity/detection"),
        visit.seal,
        hidden("path", entity.path),
        problems(form, "Not switched on", TITLES),
        detection_fields(form, visit.desk.catalogue.namespace),
        text_field(form, "confirm", f"Type the name of the {kind} to confirm", hint=entity.name, required=True),
        button("Switch on detection", class_="main"),
        class_="wide",
    )
    explanation = (
        "From now on, a message whose MessageId is remembered is a duplicate, and is dropped. Messages that were "
        "sent before are not remembered. This cannot be undone. It goes beyond Azure, where detection is chosen at "
        "creation."
    )
    return visit.page(
        f"Switch on duplicate detection for {entity.name}",
        await heading(visit, entity, "change"),
        tag("p", explanation, class_="lead"),
        content,
        status=status,
    )


# Deleting


async def show_delete(visit: Visit) -> Response:
    """Return the page that asks for confirmation."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    return await _delete_page(visit, visit.entity(), Filled({}))


async def delete(visit: Visit) -> Response:
    """Delete the entity if its name was typed correctly, or return the form with the error."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    entity = visit.entity()
    form = Filled(visit.posted.values())
    if form.value("confirm").strip() != entity.name:
        form.errors["confirm"] = f"The name does not match. Type '{entity.name}' to delete it."
        return await _delete_page(visit, entity, form, status=400)

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        if catalogue.entity(entity.id) is None:
            raise BadRequest(f"'{entity.path}' has changed since you opened the page: it was deleted meanwhile.")
        return catalogue.deleted(entity)

    await visit.desk.broker.change(how)
    back = link("entity", path=entity.topic) if isinstance(entity, Subscription) else link()
    return visit.go_to(back, f"The {type(entity).__name__.lower()} '{entity.name}' was deleted.")


async def _delete_page(visit: Visit, entity: Entity, form: Filled, status: int = 200) -> Response:
    kind = type(entity).__name__.lower()
    below = len(visit.desk.catalogue.subscriptions_of(entity)) if isinstance(entity, Topic) else 0
    also = f" This also deletes {counted(below, 'subscription')}." if below else ""
    explanation = (
        f"All messages in the {kind} are lost, and the ids it remembers are forgotten.{also} This cannot be undone."
    )
    content = form_to(
        link("entity/delete"),
        visit.seal,
        hidden("path", entity.path),
        text_field(form, "confirm", f"Type the name of the {kind} to delete it", hint=entity.name, required=True),
        button(f"Delete the {kind}", class_="danger"),
        class_="wide",
    )
    return visit.page(
        f"Delete {entity.name}",
        await heading(visit, entity, "delete"),
        tag("p", explanation, class_="lead"),
        content,
        status=status,
    )
