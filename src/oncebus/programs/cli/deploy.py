"""`oncebus deploy` and `export`: apply a template to the namespace, and write the namespace as a template."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncebus.programs.cli.client import NotAnswered
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_option
from oncebus.programs.cli.printing import as_text, json_text, print_json, visible
from oncebus.protocols.management.documents import find, is_object, parse_document, read_document, written_name
from oncebus.protocols.management.problems import Fault, FileRefused, Problem
from oncebus.protocols.management.writing import GROUP, SUBSCRIPTION
from oncebus.protocols.templates.parameters import value_from_text

DEPLOYMENTS_VERSION = "2024-03-01"
SIGNS = {"Create": "+", "Modify": "~", "NoChange": "=", "Delete": "-"}

_SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_-]*)=(?P<value>.*)", re.DOTALL)
_KINDS = {"queues": "queue", "topics": "topic", "subscriptions": "subscription", "rules": "rule"}
_TEMPLATE = "Template"


@click.command(
    short_help="Create and update entities from an ARM template.",
    epilog="Example: oncebus deploy template.json --parameters window=PT1H --what-if",
)
@click.argument("template")
@click.option(
    "--parameters",
    "-p",
    multiple=True,
    metavar="FILE|NAME=VALUE",
    help="A parameter file, or one value; repeatable. For a repeated parameter, the last value counts.",
)
@click.option("--what-if", is_flag=True, help="Show the changes without making them.")
@click.option("--name", metavar="NAME", help="Name of the deployment; defaults to the template file's.")
@json_option
@broker_options
def deploy(
    broker: BrokerLocation, template: str, parameters: Sequence[str], what_if: bool, name: str | None, as_json: bool
) -> None:
    """Create or update the queues, topics, subscriptions and rules that TEMPLATE names; "-" is standard input.

    TEMPLATE is an Azure Resource Manager template. It is applied as a whole or, after an error, not at all. Every error
    is printed with its location in the template. Entities that the template does not name stay as they are. The output
    marks resources as new (+), changed (~), deleted (-) or unchanged (=).
    """
    content = _template(template)
    values = _values(parameters, content)
    called = re.sub(r"[^A-Za-z0-9._()-]+", "-", name or Path(template).stem or "template")[:64] or "template"
    path = f"{_SCOPE}/providers/Microsoft.Resources/deployments/{called}"
    body = {"properties": {"mode": "Incremental", "template": content, "parameters": values}}
    with broker.connect() as client:
        try:
            if what_if:
                answer = client.ask_json("POST", f"{path}/whatIf?api-version={DEPLOYMENTS_VERSION}", body)
            else:
                answer = client.ask_json("PUT", f"{path}?api-version={DEPLOYMENTS_VERSION}", body)
        except NotAnswered as error:
            raise _refusal_in(error, template) or error from None
    for each in answer["properties"]["diagnostics"]:
        click.echo(f"oncebus: Note: {visible(each['message'])}", err=True)
    if as_json:
        print_json(answer)
    else:
        _show(answer["properties"]["changes"], what_if)


@click.command(
    short_help="Write the namespace as an ARM template.", epilog="Example: oncebus export --out namespace.json"
)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="File to write; defaults to standard output."
)
@broker_options
def export(broker: BrokerLocation, out: Path | None) -> None:
    """Write all queues, topics, subscriptions and rules of a running broker as a template for `oncebus deploy`.

    The template contains no keys: authorization rules get new keys where it is deployed.
    """
    with broker.connect() as client:
        path = f"{_SCOPE}/exportTemplate?api-version={DEPLOYMENTS_VERSION}"
        answer = client.ask_json("POST", path, {"resources": ["*"]})
    for each in answer.get("error", {}).get("details", []):
        click.echo(f"oncebus: Note: {visible(each['message'])}", err=True)
    text = json_text(answer["template"], indent=2)
    if out is None:
        click.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        click.echo(f"{len(answer['template']['resources'])} resources written to '{out}'.")


def _template(path: str) -> Any:
    if path != "-":
        return read_document(Path(path), _TEMPLATE)
    try:
        return parse_document(sys.stdin.buffer.read())
    except Fault as error:
        raise FileRefused([Problem("", f"It is not JSON: {error}")], f"{_TEMPLATE} '-'") from None


def _values(given: Sequence[str], template: Any) -> dict[str, Any]:
    """Return the values of parameters, in the format of a parameter file.

    If a parameter is given twice, the last value wins.
    """
    declared = find(template, "parameters") if is_object(template) else None
    values: dict[str, Any] = {}
    for text in given:
        assigned = _ASSIGNED.fullmatch(text)
        if assigned is not None and not _is_file(text):
            name = assigned["name"]
            about = find(declared, name) if is_object(declared) else None
            try:
                value = value_from_text(assigned["value"], about if is_object(about) else {})
            except Fault as error:
                raise RequestError(f"Option --parameters has value '{text}': {error}") from None
            found = {name: {"value": value}}
        else:
            found = _from_file(Path(text.removeprefix("@")))
        for name, value in found.items():
            values.pop(written_name(values, name) or name, None)
            values[name] = value
    return values


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        # The text is too long for a file name, or contains a null character.
        return False


def _from_file(path: Path) -> dict[str, Any]:
    content = read_document(path, "Parameter file")
    values = find(content, "parameters") if is_object(content) else None
    if not is_object(values):
        problem = Problem("", 'It does not have the form {"parameters": {"name": {"value": …}}}.')
        raise FileRefused([problem], f"Parameter file '{path}'")
    return values


def _refusal_in(error: NotAnswered, template: str) -> FileRefused | None:
    """Return the problems that the broker found in a template; None if the request failed for another reason."""
    try:
        details = json.loads(error.content)["error"]["details"]
        problems = [Problem(each["target"], each["message"]) for each in details]
    except (ValueError, KeyError, TypeError):
        return None
    return FileRefused(problems, f"{_TEMPLATE} '{template}'") if problems else None


def _show(changes: list[dict[str, Any]], what_if: bool) -> None:
    for change in changes:
        effect = change["changeType"]
        click.echo(f"{SIGNS[effect]} {_title(change['resourceId'])}")
        if effect == "NoChange":
            continue
        before, after = change.get("before", {}), change.get("after", {})
        for name in dict.fromkeys((*after, *before)):
            _show_property(name, before.get(name), after.get(name), effect)
    counts = {effect: sum(change["changeType"] == effect for change in changes) for effect in SIGNS}
    words = {"Create": "new", "Modify": "changed", "Delete": "deleted", "NoChange": "unchanged"}
    figures = ", ".join(f"{counts[effect]} {word}" for effect, word in words.items() if counts[effect])
    verb = "Would deploy" if what_if else "Deployed"
    click.echo(f"{verb}: {figures}." if figures else "The template has no resources.")


def _show_property(name: str, before: Any, after: Any, effect: str) -> None:
    if effect in ("Create", "Delete"):
        click.echo(f"    {SIGNS[effect]} {name}: {_value(after if effect == 'Create' else before)}")
    elif before == after:
        click.echo(f"    = {name}: {_value(after)}")
    elif before is None or after is None:
        click.echo(f"    {'+' if before is None else '-'} {name}: {_value(after if before is None else before)}")
    else:
        click.echo(f"    ~ {name}: {_value(before)} -> {_value(after)}")


def _value(value: Any) -> str:
    return visible(as_text(value))


def _title(resource: str) -> str:
    """Return the kind and the path of a resource, like `queue orders`, from its id."""
    below = resource.partition("/namespaces/")[2].split("/")
    pairs = list(zip(below[1::2], below[2::2], strict=False))
    if not pairs:
        return f"namespace {below[0]}"
    kind, _ = pairs[-1]
    word = _KINDS.get(kind, "authorization rule")
    return f"{word} {visible('/'.join(name for _, name in pairs))}"
