"""The pages of shared access policies: the authorization rules of the namespace, a queue or a topic, and their keys."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.model.access import AuthorizationRule, Operation, Right, WhichKey, connection_string
from oncebus.model.access.scopes import host_of
from oncebus.model.entities import BadRequest, Queue, Topic
from oncebus.protocols.management.authorization import GivenRule, rights_in_order
from oncebus.protocols.management.authorization_rules import RulesOwner
from oncebus.protocols.portal.forms import Form, button, check_box, hidden, list_errors, text_field
from oncebus.protocols.portal.layout import empty, facts, section_head, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit, status_of
from oncebus.values.errors import OncebusError

_COLUMNS = (Column("Name"), Column("Rights"), Column("Keys"))
_HINT = "Whoever has a key of a policy has its rights here and below. Give each program a policy of its own."
_RIGHTS = {
    Right.SEND: "Send messages",
    Right.LISTEN: "Receive, settle and look at messages",
    Right.MANAGE: "Also create, change and delete what is here, and its policies",
}
_KEYS = {WhichKey.PRIMARY: "Primary", WhichKey.SECONDARY: "Secondary"}


async def show(visit: Visit) -> Response:
    """Return the page with all policies of the namespace or of an entity, and the form for a new one."""
    visit.require(Operation.AUTHORIZATION_RULES, visit.path)
    return _page(visit, Form())


async def create(visit: Visit) -> Response:
    """Create the policy that the form describes, or return the form with its errors."""
    visit.require(Operation.AUTHORIZATION_RULES, visit.path)
    owner, form = _owner(visit), visit.form
    name = form["rule"].strip()
    rights = frozenset(right for right in Right if form[right.value])
    if any(rule.name.lower() == name.lower() for rule in visit.desk.policies.of(owner)):
        form.errors["rule"] = "There is a policy with this name."
    elif not rights:
        form.errors[Right.SEND.value] = "Choose at least one right."
    else:
        try:
            await visit.desk.policies.put(owner, GivenRule(name, rights))
        except OncebusError as error:
            form.add_error(error, {"name": "rule"})
            return _page(visit, form, status_of(error))
    if form.is_wrong:
        return _page(visit, form, 400)
    return visit.go_to(_address(visit), f"The policy '{name}' was created.")


async def show_keys(visit: Visit) -> Response:
    """Return the page with the keys of one policy."""
    visit.require(Operation.AUTHORIZATION_RULES, visit.path)
    rule = visit.desk.policies.get(_owner(visit), visit.parameter("rule"))
    return visit.page(
        rule.name,
        top([rule.name, " ", tag("span", "Policy", class_="kind")], *_above(visit), _here(visit)),
        tag("p", f"Rights: {', '.join(rights_in_order(rule.rights))}.", class_="lead"),
        [_key(visit, rule, which) for which in WhichKey],
        section_head("Delete the policy"),
        visit.form_to("policies/delete", hidden("rule", rule.name), button("Delete…", class_="risky")),
    )


async def renew(visit: Visit) -> Response:
    """Replace a key of a policy by a random one, once that was confirmed."""
    visit.require(Operation.AUTHORIZATION_RULES, visit.path)
    owner, policies = _owner(visit), visit.desk.policies
    rule = policies.get(owner, visit.form["rule"])
    which = WhichKey(visit.one_of("key", list(WhichKey)))
    back = _address(visit, "/keys", rule.name)
    if not visit.form["sure"]:
        text = "Clients that use the present key are refused at once, and so are tokens that it signed."
        return _confirm(visit, f"Renew the {_KEYS[which].lower()} key", text, "renew", back, rule, key=which.value)
    await policies.regenerate(owner, rule.name, which, None)
    return visit.go_to(back, f"The {_KEYS[which].lower()} key was renewed.")


async def delete(visit: Visit) -> Response:
    """Delete a policy, once that was confirmed."""
    visit.require(Operation.AUTHORIZATION_RULES, visit.path)
    owner = _owner(visit)
    rule = visit.desk.policies.get(owner, visit.form["rule"])
    if not visit.form["sure"]:
        text = "Clients that use one of its keys are refused at once. This cannot be undone."
        return _confirm(visit, "Delete the policy", text, "delete", _address(visit, "/keys", rule.name), rule)
    await visit.desk.policies.delete(owner, rule.name)
    return visit.go_to(_address(visit), f"The policy '{rule.name}' was deleted.")


def _page(visit: Visit, form: Form, status: int = 200) -> Response:
    rules = visit.desk.policies.of(_owner(visit))
    rows = [
        TableRow(
            rule.name,
            [
                ", ".join(rights_in_order(rule.rights)),
                tag("a", "Keys", href=_address(visit, "/keys", rule.name), aria_label=f"Keys of {rule.name}"),
            ],
        )
        for rule in rules
    ]
    title = "Shared access policies"
    return visit.page(
        title,
        top(title, *_above(visit)),
        tag("p", _HINT, class_="hint"),
        table(title, _COLUMNS, rows) if rows else empty("There is no policy here. Those of the namespace apply."),
        section_head("Create a policy"),
        visit.form_to(
            "policies",
            list_errors(form, "Not created"),
            text_field(form, "rule", "Name", required=True, maxlength=50),
            [check_box(form, right.value, right.value, hint=_RIGHTS[right]) for right in _RIGHTS],
            button("Create the policy", class_="main"),
            class_="wide",
        ),
        status=status,
        here="" if visit.path else link("policies"),
    )


def _key(visit: Visit, rule: AuthorizationRule, which: WhichKey) -> Markup:
    name, owner = _KEYS[which], _owner(visit)
    entity = None if owner is None else visit.entity().path
    text = connection_string(
        host_of(visit.host), visit.desk.amqp_port, rule, visit.is_plain, entity=entity, which=which
    )
    renewal = visit.form_to(
        "policies/renew", hidden("rule", rule.name), hidden("key", which.value), button("Renew…", class_="risky")
    )
    shown = facts(
        [
            ("Key", _secret(f"{which}-key", rule.key(which), f"{name.lower()} key")),
            ("Connection string", _secret(f"{which}-string", text, f"{name.lower()} connection string")),
        ],
        class_="facts plain",
    )
    return tag("section", section_head(f"{name} key", renewal), shown)


def _secret(id_: str, text: str, what: str) -> list[Content]:
    copy = tag(
        "button", "Copy", type="button", class_="quiet", data_copy=id_, hidden=True, aria_label=f"Copy the {what}"
    )
    return [tag("code", text, id=id_, class_="secret"), " ", copy]


def _confirm(
    visit: Visit, title: str, text: str, what: str, back: str, rule: AuthorizationRule, **brought: str
) -> Response:
    heading = f"{title} of '{rule.name}'" if what == "renew" else f"{title} '{rule.name}'"
    question = visit.ask(f"policies/{what}", title, back, rule=rule.name, **brought)
    lead = tag("p", text, class_="lead")
    return visit.page(heading, top(heading, *_above(visit), _here(visit)), lead, question)


def _owner(visit: Visit) -> RulesOwner | None:
    if not visit.path:
        return None
    entity = visit.entity()
    if isinstance(entity, Queue):
        return RulesOwner(Queue, entity.name)
    if isinstance(entity, Topic):
        return RulesOwner(Topic, entity.name)
    raise BadRequest(f"'{entity.path}' has no policies of its own: those of its topic apply.")


def _above(visit: Visit) -> list[tuple[str, str]]:
    above = [("Overview", link())]
    if visit.path:
        path = visit.entity().path
        above.append((path, link("entity", path=path)))
    return above


def _here(visit: Visit) -> tuple[str, str]:
    return "Shared access policies", _address(visit)


def _address(visit: Visit, below: str = "", rule: str | None = None) -> str:
    return link(f"policies{below}", path=visit.path or None, rule=rule)
