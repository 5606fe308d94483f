"""The pages that create, change and delete queues, topics and subscriptions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from starlette.responses import Response

from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Catalogue, Entity, Queue, Subscription, Topic
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, EntityKind, blank, forward_targets
from oncebus.model.entities.names import DEFAULT_RULE
from oncebus.protocols.management import changes
from oncebus.protocols.portal import rules
from oncebus.protocols.portal.entity_form import (
    DETECTION,
    ERROR_FIELDS,
    NAME,
    TITLES,
    detection_fields,
    entity_fields,
    form_values,
    read_entity,
    read_window,
    tier_refusal,
)
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.forms import Form, button, hidden, list_errors, text_field
from oncebus.protocols.portal.layout import top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, tag
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import count_in_words, moment
from oncebus.values.errors import OncebusError

KINDS: dict[str, EntityKind] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
_VERSION = "version"
_SEGMENT = "Letters, numbers and . - _ ~"


# Creating


async def show_create(visit: Visit) -> Response:
    """Return the page with the empty form."""
    new = _new(visit)
    visit.require(Operation.CREATE_ENTITY, new.topic if isinstance(new, Subscription) else "")
    return _create_page(visit, new, Form({**form_values(new), "filter": "all"}))


async def create(visit: Visit) -> Response:
    """Create the entity that the form describes, or return the form with its errors."""
    form = visit.form
    new = replace(_new(visit), name=form[NAME].strip())
    visit.require(Operation.CREATE_ENTITY, new.path)
    given = read_entity(new, form)
    if isinstance(new, Subscription):
        given = replace(given, default_rule=rules.read_rule(form, form[rules.RULE_NAME].strip() or DEFAULT_RULE))
    how = changes.create(new, given, partial(_check_forwarding, visit))
    status = await visit.change(how, {**ERROR_FIELDS, **rules.ERROR_FIELDS})
    if status != 200:
        return _create_page(visit, new, form, status)
    return visit.go_to(link("entity", path=new.path), f"The {type(new).__name__.lower()} '{new.name}' was created.")


def _new(visit: Visit) -> Entity:
    """Return a new entity of the requested kind, with the service's defaults."""
    return blank(KINDS[visit.one_of("kind", KINDS)], "", visit.parameter("topic"))


def _create_page(visit: Visit, new: Entity, form: Form, status: int = 200) -> Response:
    namespace, kind = visit.desk.catalogue.namespace, type(new)
    title = f"Create a {kind.__name__.lower()}"
    above = [("Overview", link())]
    refusal = tier_refusal(kind, None, namespace)
    if refusal is not None:
        return visit.page(title, top(title, *above), tag("p", refusal, class_="lead"))
    hint = f"{_SEGMENT}, in segments with slashes between them."
    of_subscription: Content = None
    if isinstance(new, Subscription):
        visit.desk.catalogue.topic(new.topic)
        above.append((new.topic, link("entity", path=new.topic)))
        hint = f"{_SEGMENT}."
        of_subscription = [hidden("topic", new.topic), rules.filter_fields(form, is_first=True)]
    content = visit.form_to(
        "create",
        hidden("kind", kind.__name__.lower()),
        list_errors(form, "Not created", TITLES),
        text_field(form, NAME, "Name", required=True, maxlength=260, hint=hint),
        of_subscription,
        entity_fields(kind, form, namespace, None),
        button("Create", class_="main"),
        class_="wide create",
    )
    return visit.page(title, top(title, *above), content, status=status)


# Changing


async def show_change(visit: Visit) -> Response:
    """Return the page of an entity's properties: a form if the key permits changes."""
    visit.require(Operation.READ_ENTITY, visit.path)
    entity = visit.entity()
    return await _change_page(visit, entity, Form({**form_values(entity), _VERSION: str(entity.updated_at)}))


async def change(visit: Visit) -> Response:
    """Change the entity to what the form describes, or return the form with its errors."""
    visit.require(Operation.UPDATE_ENTITY, visit.path)
    seen, form = visit.entity(), visit.form
    version = form[_VERSION]
    # Browsers do not send disabled fields, so the form gets these values again.
    fixed = {name: value for name, value in form_values(seen).items() if name in CHOSEN_AT_CREATION}
    form.values = {**fixed, **form.values, _VERSION: str(seen.updated_at)}
    if version != str(seen.updated_at):
        form.general.append(f"'{seen.path}' was changed meanwhile. Check whether you still want these changes.")
        return await _change_page(visit, seen, form, 409)
    new = read_entity(seen, form).apply_to(seen)

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        if catalogue.entity(seen.id) != seen:
            raise BadRequest(f"'{seen.path}' was changed meanwhile. Open the page again.")
        _check_forwarding(visit, seen, new)
        return catalogue.update(new, now)

    status = await visit.change(how, ERROR_FIELDS)
    if status != 200:
        return await _change_page(visit, seen, form, status)
    return visit.go_to(link("entity/change", path=seen.path), "The changes are in effect.")


def _check_forwarding(visit: Visit, old: Entity | None, new: Entity) -> None:
    """Raise `AccessRefused` if the entity would forward to one that the key may not manage."""
    visit.desk.guard.require_forwarding(visit.grant, forward_targets(old), forward_targets(new))


async def _change_page(visit: Visit, entity: Entity, form: Form, status: int = 200) -> Response:
    content = visit.form_to(
        "entity/change",
        hidden(_VERSION, form[_VERSION]),
        list_errors(form, "Not changed", TITLES),
        entity_fields(type(entity), form, visit.desk.catalogue.namespace, entity),
        button("Save", class_="main"),
        class_="wide",
    )
    made = ["Made at ", moment(entity.created_at), ", last changed at ", moment(entity.updated_at), "."]
    parts = [tag("p", made, class_="hint"), content, _detection_link(visit, entity)]
    return await entity_page(visit, entity, "change", f"Properties of {entity.name}", parts, status=status)


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
    return await _detection_page(visit, entity, Form(form_values(entity)))


async def switch_on_detection(visit: Visit) -> Response:
    """Switch on detection if the name was typed correctly, or return the form with its errors."""
    visit.require(Operation.SWITCH_ON_DETECTION, visit.path)
    entity, form = visit.entity(), visit.form
    _check_typed_name(form, entity, "switch on detection")
    window, key = None, form["detection_key"].strip() or None
    try:
        window = read_window(form)
    except OncebusError as error:
        form.add_error(error, ERROR_FIELDS)
    status = await visit.change(
        lambda catalogue, now: catalogue.switch_on_detection(entity.path, window, now, key), ERROR_FIELDS
    )
    if status != 200:
        return await _detection_page(visit, entity, form, status)
    return visit.go_to(link("entity/change", path=entity.path), "Duplicates are detected from now on.")


def _check_typed_name(form: Form, entity: Entity, purpose: str) -> None:
    """Add an error to the form unless the visitor has typed the name of the entity."""
    if form["confirm"].strip() != entity.name:
        form.errors["confirm"] = f"The name does not match. Type '{entity.name}' to {purpose}."


async def _detection_page(visit: Visit, entity: Entity, form: Form, status: int = 200) -> Response:
    kind = type(entity).__name__.lower()
    content = visit.form_to(
        "entity/detection",
        list_errors(form, "Not switched on", TITLES),
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
    title = f"Switch on duplicate detection for {entity.name}"
    parts = [tag("p", explanation, class_="lead"), content]
    return await entity_page(visit, entity, "change", title, parts, status=status)


# Deleting


async def show_delete(visit: Visit) -> Response:
    """Return the page that asks for confirmation."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    return await _delete_page(visit, visit.entity())


async def delete(visit: Visit) -> Response:
    """Delete the entity if its name was typed correctly, or return the form with the error."""
    visit.require(Operation.DELETE_ENTITY, visit.path)
    entity = visit.entity()
    _check_typed_name(visit.form, entity, "delete it")
    if visit.form.is_wrong:
        return await _delete_page(visit, entity, 400)

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        if catalogue.entity(entity.id) is None:
            raise BadRequest(f"'{entity.path}' has changed since you opened the page: it was deleted meanwhile.")
        return catalogue.delete(entity)

    await visit.desk.broker.change(how)
    back = link("entity", path=entity.topic) if isinstance(entity, Subscription) else link()
    return visit.go_to(back, f"The {type(entity).__name__.lower()} '{entity.name}' was deleted.")


async def _delete_page(visit: Visit, entity: Entity, status: int = 200) -> Response:
    kind, catalogue = type(entity).__name__.lower(), visit.desk.catalogue
    below = len(catalogue.subscriptions_of(entity)) if isinstance(entity, Topic) else 0
    also = f" This also deletes {count_in_words(below, 'subscription')}." if below else ""
    explanation = (
        f"All messages in the {kind} are lost, and the ids it remembers are forgotten.{also} This cannot be undone."
    )
    label = f"Type the name of the {kind} to delete it"
    content = visit.form_to(
        "entity/delete",
        text_field(visit.form, "confirm", label, hint=entity.name, required=True),
        button(f"Delete the {kind}", class_="danger"),
        class_="wide",
    )
    parts = [tag("p", explanation, class_="lead"), content]
    return await entity_page(visit, entity, "delete", f"Delete {entity.name}", parts, status=status)
