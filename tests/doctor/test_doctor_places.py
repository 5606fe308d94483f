from __future__ import annotations

import pytest

from oncebus.doctor.findings import Finding, Status, ok
from oncebus.doctor.places import (
    ExecutorVisit,
    client_finding,
    sharing_finding,
    storage_clock_finding,
    writing_finding,
)
from oncebus.doctor.trial import Sight, Trial

SEEN, LOST = Sight(True), Sight(False, 5.0)
GOOD = ExecutorVisit("one", SEEN, Trial(), SEEN)


def sharing(*visits: ExecutorVisit) -> Finding:
    return sharing_finding("/ledger", list(visits), "the driver")


def test_a_shared_place() -> None:
    assert sharing(GOOD) == ok("ledger: sharing", "the driver and 1 host with executors see the same files")
    two = sharing(GOOD, GOOD, ExecutorVisit("two", SEEN, Trial(), SEEN))
    assert two.found == "the driver and 2 hosts with executors see the same files"


@pytest.mark.parametrize(
    ("visit", "found"),
    [
        (ExecutorVisit("two", LOST), "'two' does not see at '/ledger' what the driver writes there"),
        (ExecutorVisit("two", SEEN, Trial(), LOST), "the driver does not see at '/ledger' what 'two' writes there"),
        (ExecutorVisit("two", Sight(False, 0.0, "Access denied.")), "'two' cannot read '/ledger': Access denied"),
        (
            ExecutorVisit("two", Sight(True, 2.5), Trial(), SEEN),
            "a file at '/ledger' appeared on another machine only after 2.5 s ('two')",
        ),
        (
            ExecutorVisit("two", SEEN, Trial(), Sight(True, 0.5)),
            "a file at '/ledger' appeared on another machine only after 0.5 s ('two')",
        ),
    ],
)
def test_a_place_that_is_not_shared(visit: ExecutorVisit, found: str) -> None:
    bad = sharing(GOOD, visit)
    assert (bad.status, bad.found) == (Status.FAILED, found)
    assert bad.advice


@pytest.mark.parametrize("step", ["write", "read", "replace", "claim", "delete"])
def test_each_step_of_a_trial_has_an_advice(step: str) -> None:
    found = writing_finding("/ledger", {"the driver": Trial(), "'two'": Trial(step, "It is broken.")})
    assert (found.status, found.found) == (Status.FAILED, f"'two' cannot {step} files at '/ledger': It is broken")
    assert found.advice


def test_a_place_that_can_be_written() -> None:
    found = writing_finding("/ledger", {"the driver": Trial(seconds=0.01), "'two'": Trial(seconds=0.2)})
    assert found.status is Status.OK
    assert found.found.endswith("a file takes 0.200 s")


def test_a_client_of_connect_that_does_not_see_the_ledger_is_only_warned() -> None:
    assert client_finding("/ledger", SEEN).status is Status.OK
    found = client_finding("/ledger", LOST)
    assert (found.status, found.found) == (
        Status.WARNING,
        "this client does not see '/ledger' as the executors do",
    )
    assert client_finding("/ledger", Sight(False, 0.0, "No key.")).found.endswith("do: No key")


def test_the_clock_of_the_storage() -> None:
    good = {"the driver": Trial(low=-0.2, high=0.0)}
    assert storage_clock_finding(good) == ok("ledger: clock", "within 0.2 s of the ledger's files")
    # The files of a server whose clock is 90 s behind look 90 s old here: the machine is ahead.
    found = storage_clock_finding(good | {"'two'": Trial(low=-90.5, high=-89.5)})
    assert found.status is Status.FAILED
    assert found.found == "the clock of 'two' is +90.0 ± 0.5 s from that of the ledger's files"
