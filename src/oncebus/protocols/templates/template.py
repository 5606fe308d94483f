"""Turns a template and its parameters into `Wanted`, and into a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities import Catalogue
from oncebus.protocols.management.documents import Object, find, is_object, kind_of, written_name
from oncebus.protocols.management.planning import Plan, plan
from oncebus.protocols.management.problems import Problems, member
from oncebus.protocols.management.wanted import Wanted
from oncebus.protocols.templates.evaluation import Evaluator
from oncebus.protocols.templates.functions import Function
from oncebus.protocols.templates.outputs import Deployed, evaluate_outputs
from oncebus.protocols.templates.parameters import Parameters
from oncebus.protocols.templates.reading import ResourceReader
from oncebus.protocols.templates.resources import Resources
from oncebus.protocols.templates.scope import Deployment, StepBudget, Value

MOST_VARIABLES = 256
"""The maximum number of variables of a template. It is the Resource Manager's limit."""


def read_template(
    template: Value,
    given: Value,
    problems: Problems,
    deployment: Deployment | None = None,
    budget: StepBudget | None = None,
) -> Wanted:
    """Return the resources that a template asks for, as far as it can be read.

    Parameter values are {"name": {"value": …}}.

    Each problem is added to `problems`. `read_outputs` reads the template's outputs.
    """
    deployment = deployment or Deployment()
    template = _object(template, "The template is", problems)
    evaluator = _evaluator(template, given, problems, deployment, budget)
    if evaluator is None:
        return Wanted(is_complete=False)
    written: Value = find(template, "resources")
    if written is None:
        if template:
            problems.add("", "The template has no 'resources'.")
        return Wanted(is_complete=False)
    resources = Resources(evaluator, deployment, problems)
    found = resources.read(written)
    return ResourceReader(problems).read(found, is_complete=resources.is_complete)


def read_outputs(
    template: Value,
    given: Value,
    problems: Problems,
    deployed: Deployed,
    deployment: Deployment | None = None,
    budget: StepBudget | None = None,
) -> Object:
    """Return the outputs of a template, with their types, once its resources are `deployed`. Records each problem."""
    template = _object(template, "The template is", problems)
    if find(template, "outputs") is None:
        return {}
    evaluator = _evaluator(template, given, problems, deployment or Deployment(), budget, deployed.functions)
    return {} if evaluator is None else evaluate_outputs(find(template, "outputs"), evaluator, problems)


def _evaluator(
    template: Object,
    given: Value,
    problems: Problems,
    deployment: Deployment,
    budget: StepBudget | None,
    at_run_time: Iterable[Function] = (),
) -> Evaluator | None:
    """Return what evaluates the expressions of a template, after its parameters and variables are checked.

    None if there are too many variables.
    """
    declared, variables = _section(template, "parameters", problems), _section(template, "variables", problems)
    if len(variables) > MOST_VARIABLES:
        problems.add("variables", f"There are {len(variables)} variables; {MOST_VARIABLES} is the limit.")
        return None
    evaluator = Evaluator(variables, lambda name: parameters.get(name), deployment, problems, budget, at_run_time)
    values = _object(given, "The values of the parameters are", problems)
    parameters = Parameters(declared, values, evaluator.require_value, problems)
    parameters.check()
    evaluator.check_variables()
    return evaluator


def plan_template(
    template: Value,
    given: Value,
    before: Catalogue,
    now: int,
    *,
    deployment: Deployment | None = None,
    namespace_rules: Iterable[AuthorizationRule] | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> Plan:
    """Return the plan that deploys a template to a namespace. Raises `FileRefused` with all problems.

    `namespace_rules` is None if the namespace's own authorization rules cannot be changed. `is_late` is called
    regularly; once it returns true, the template is rejected.
    """
    problems = Problems()
    wanted = read_template(template, given, problems, deployment, StepBudget(is_late=is_late))
    return plan(wanted, before, now, problems, namespace_rules)


def _object(value: Value, what: str, problems: Problems) -> Object:
    if is_object(value):
        return value
    problems.add("", f"{what} {kind_of(value)}. Not an object.")
    return {}


def _section(template: Object, name: str, problems: Problems) -> Object:
    section: Value = find(template, name)
    if section is None:
        return {}
    if not is_object(section):
        place = member("", written_name(template, name) or name)
        problems.add(place, f"The {name} are {kind_of(section)}. Not an object.")
        return {}
    return section
