"""A request of a signed-in visitor: its parameters, the visitor's rights, and the response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import JSONResponse, Response

from oncebus.broker.broker import Broker
from oncebus.engine.store import Counts
from oncebus.model.access import AccessRefused, Grant, Guard, Operation, Reason
from oncebus.model.entities import BadRequest, Catalogue, Entity, NotFound
from oncebus.protocols.http.errors import error_answer
from oncebus.protocols.http.paths import LAST_NUMBER, number_in
from oncebus.protocols.http.rendering import Renderer
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.monitoring.health import Health
from oncebus.protocols.portal.forms import Form, button, form_to, hidden
from oncebus.protocols.portal.layout import PRIVATE, PageFrame, page, redirect
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Attribute, Content, Markup, tag
from oncebus.protocols.portal.rates import Rates
from oncebus.protocols.portal.remembered import Remembered
from oncebus.protocols.portal.sessions import PortalSession
from oncebus.values.errors import OncebusError, clip


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error page. It is 403, not 401, if the visitor lacks a right."""
    return 403 if isinstance(error, AccessRefused) else error_answer(error).status


@dataclass(frozen=True, slots=True)
class Desk:
    """The objects that all pages share."""

    broker: Broker
    guard: Guard
    health: Health
    rates: Rates
    remembered: Remembered
    renderer: Renderer
    policies: AuthorizationRules
    amqp_port: int | None

    @property
    def catalogue(self) -> Catalogue:
        """Return the current catalogue."""
        return self.broker.catalogue

    async def counts_of(self, entities: Sequence[Entity]) -> list[Counts]:
        """Return the current counts of entities, without waiting for the pipeline."""
        return await self.broker.counts_now([each.id for each in entities])


@dataclass(frozen=True, slots=True)
class Visit:
    """One request from a signed-in user. Its rights are checked against the table that all protocols share."""

    desk: Desk
    session: PortalSession
    grant: Grant
    seal: str
    query: dict[str, str]
    form: Form
    host: str
    """The host and port by which the browser reached the gateway."""
    is_plain: bool
    """Whether it did so without TLS."""

    # Rights

    def may(self, operation: Operation, path: str = "") -> bool:
        """Return whether the key permits an operation on the entity at a path, or on the namespace."""
        try:
            self.require(operation, path)
        except AccessRefused:
            return False
        return True

    def require(self, operation: Operation, path: str = "") -> None:
        """Raise `AccessRefused` unless the key permits the operation."""
        try:
            self.desk.guard.require(self.grant, operation, path)
        except AccessRefused as error:
            if error.reason is not Reason.AUDIENCE or self.grant.scope.path:
                raise
            # A key of the whole namespace passes even for an invalid path; the catalogue rejects that path later.
            self.desk.guard.require(self.grant, operation, "")

    # Parameters

    @property
    def now(self) -> int:
        """Return the time, in microseconds since 1970."""
        return self.desk.broker.clock.now()

    @property
    def path(self) -> str:
        """Return the path of the requested entity."""
        return self.parameter("path")

    def parameter(self, name: str) -> str:
        """Return a parameter of the address or of the form; empty if there is none."""
        return self.query.get(name, "") or self.form[name]

    def one_of(self, name: str, known: Iterable[str], default: str = "") -> str:
        """Return a parameter that has one of the known values, or else its default. Raises `BadRequest`."""
        value = self.parameter(name) or default
        if value not in known:
            raise BadRequest(f"The parameter '{name}' has value {clip(value)}. Not one of {', '.join(known)}.")
        return value

    def entity(self) -> Entity:
        """Return the requested entity. Raises `NotFound`. Check the rights first, so that nothing leaks."""
        found = self.desk.catalogue.find(self.path)
        if found is None:
            raise NotFound(self.path)
        return found

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a number from the query string, or `otherwise` if it is missing. Raises `BadRequest`."""
        return number_in(self.query, name, otherwise, 0, LAST_NUMBER)

    def chosen_numbers(self) -> list[int]:
        """Return the numbers of the rows that were chosen in a table. Raises `BadRequest`."""
        chosen = self.form.lists.get("number", [])
        return [number_in({"number": each}, "number", 0, 0, LAST_NUMBER) for each in chosen]

    async def change(self, how: Callable[[Catalogue, int], Catalogue], fields: Mapping[str, str]) -> int:
        """Change the catalogue as the form says. Return the status of the response, which is 200 if that was possible.

        Otherwise the form has the error, at one of `fields` if it is about one of them.
        """
        if self.form.is_wrong:
            return 400
        try:
            await self.desk.broker.change(how)
        except OncebusError as error:
            self.form.add_error(error, fields)
            return status_of(error)
        return 200

    # Responses

    def page(
        self, title: str, *content: Content, status: int = 200, live: str | None = None, here: str = ""
    ) -> Response:
        """Return a page in the visitor's frame."""
        notices = list(self.session.notices)
        if not self.query.get("poll"):
            # The script shows only a part of a page that it asked for by itself, without the notices.
            self.session.notices.clear()
        return page(self._frame(), title, *content, status=status, notices=notices, live=live, here=here)

    def go_to(self, address: str, notice: str | None = None) -> Response:
        """Return a redirect, after a change, to a page that shows the notice and can be reloaded safely."""
        if notice is not None:
            self.session.notices.append(notice)
        return redirect(address)

    def form_to(self, page_name: str, *content: Content, **attributes: Attribute) -> Markup:
        """Return a form of this visitor that posts to a page, about the requested entity."""
        about = hidden("path", self.path) if self.path else None
        return form_to(link(page_name), self.seal, about, content, **attributes)

    def ask(self, page_name: str, button_title: str, back: str, **brought: str | Sequence[int]) -> Markup:
        """Return the form that confirms what cannot be undone. It brings the values to a page again, and `sure`."""
        fields = [
            hidden(name, each)
            for name, value in {**brought, "sure": "yes"}.items()
            for each in ([value] if isinstance(value, str) else value)
        ]
        cancel = tag("a", "Cancel", href=back, class_="button")
        return self.form_to(page_name, fields, button(button_title, class_="danger"), " ", cancel)

    def json(self, value: object) -> Response:
        """Return a JSON response with figures for the page's script."""
        return JSONResponse(value, headers=PRIVATE)

    def _frame(self) -> PageFrame:
        namespace = self.desk.catalogue.namespace
        links, is_for_all = [("Overview", link())], self.may(Operation.ENUMERATE)
        if is_for_all:
            links += [("Duplicates", link("duplicates")), ("Pipeline", link("pipeline"))]
        if self.may(Operation.QUARANTINE):
            links.append(("Quarantine", link("quarantine")))
        if self.may(Operation.AUTHORIZATION_RULES):
            links.append(("Policies", link("policies")))
        return PageFrame(namespace.name, namespace.tier.value, self.grant.rule, self.seal, links, is_for_all)
