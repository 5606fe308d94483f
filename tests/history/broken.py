"""One history for each kind of violation."""

from __future__ import annotations

from collections.abc import Callable

from .entities import CHANGING
from .history import FAILED, UNKNOWN
from .stories import ALL, COLLECTED, LETTERS, RED, Story, routed


def accepted_and_never_seen(story: Story) -> None:
    story.send("direct", "a")


def all_of_one_id_dropped(story: Story) -> None:
    story.send("direct", "a")
    story.drop("direct", "a", 2, 1)


def one_of_two_without_detection_missing(story: Story) -> None:
    story.send("plain", "a", name="x")
    story.send("plain", "b", name="x")
    story.consume("plain", ("a", 1))


def dropped_without_record(story: Story) -> None:
    story.send("direct", "a", name="x")
    story.send("direct", "b", name="x")
    story.consume("direct", ("a", 1))


def retry_gone_without_record(story: Story) -> None:
    story.send("direct", "a", name="x", outcome=UNKNOWN)
    story.send("direct", "b", name="x")
    story.consume("direct", ("a", 1))


def cancel_refused_and_gone(story: Story) -> None:
    story.send("direct", "a", due=1.0, number=1)
    story.add("cancel", FAILED, entity="direct", uid="a", number=1)


def from_nowhere(story: Story) -> None:
    story.consume("direct", ("a", 1))


def refused_and_delivered(story: Story) -> None:
    story.send("direct", "a", outcome=FAILED)
    story.consume("direct", ("a", 1))


def elsewhere(story: Story) -> None:
    story.send("direct", "a")
    story.consume("plain", ("a", 1))


def dropped_more_often_than_sent(story: Story) -> None:
    story.send("direct", "a")
    story.consume("direct", ("a", 1))
    story.drop("direct", "a", 2, 1)


def forwarded_twice(story: Story) -> None:
    story.send("passing", "a")
    story.consume("end", ("a", 1))
    story.consume("end", ("a", 2))


def after_its_completion(story: Story) -> None:
    story.send("plain", "a")
    story.consume("plain", ("a", 1))
    story.receive("plain", ("a", 1), count=1)


def after_it_was_deferred(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, "defer")
    story.consume("plain", ("a", 1), count=1)


def completed_twice(story: Story) -> None:
    story.send("plain", "a")
    begun = story.now
    story.receive("plain", ("a", 1), begun=begun)
    story.receive("plain", ("a", 1), begun=begun)
    story.settle("plain", "a", 1)
    story.settle("plain", "a", 1)


def abandoned_and_gone(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, "abandon")


def completion_refused_and_gone(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, outcome=FAILED)


def dead_letter_missing(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, "dead-letter")


def _dead_lettered(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, "dead-letter")


def resubmitted_and_gone(story: Story) -> None:
    _dead_lettered(story)
    story.resubmit("plain", ("a", 1))


def resubmission_refused_and_gone(story: Story) -> None:
    _dead_lettered(story)
    story.resubmit("plain", ("a", 1), outcome=FAILED)


def resubmission_unanswered_and_gone(story: Story) -> None:
    _dead_lettered(story)
    story.receive("plain" + LETTERS, ("a", 1))
    story.settle("plain" + LETTERS, "a", 1, "abandon")
    story.resubmit("plain", ("a", 1), outcome=UNKNOWN)


def one_of_two_resubmitted_missing(story: Story) -> None:
    story.send("plain", "a", "b")
    for number, uid in enumerate("ab", 1):
        story.receive("plain", (uid, number))
        story.settle("plain", uid, number, "dead-letter")
    story.resubmit("plain", ("a", 1), ("b", 2))
    story.consume("plain", ("a", 3))
    story.consume("plain" + LETTERS, ("b", 2))


def resubmitted_twice(story: Story) -> None:
    _dead_lettered(story)
    story.resubmit("plain", ("a", 1))
    story.resubmit("plain", ("a", 1))
    story.consume("plain", ("a", 2))
    story.consume("plain", ("a", 3))


def half_a_batch(story: Story) -> None:
    story.send("plain", "a", "b", outcome=UNKNOWN)
    story.consume("plain", ("a", 1))


def both_delivered(story: Story) -> None:
    story.send("direct", "a", name="x")
    story.send("direct", "b", name="x")
    story.consume("direct", ("a", 1), ("b", 2))


def delivered_though_a_cancelled_one_had_its_id(story: Story) -> None:
    story.send("direct", "a", name="x", due=9.0, number=1)
    story.add("cancel", entity="direct", uid="a", number=1)
    story.send("direct", "b", name="x")
    story.consume("direct", ("b", 2))


def within_a_short_window(story: Story) -> None:
    story.send("window", "a", name="x")
    story.consume("window", ("a", 1), enqueued=0.05)
    story.now = 19_000_000
    story.send("window", "b", name="x")
    story.consume("window", ("b", 2), enqueued=19.05)


def forgotten_before_both(story: Story) -> None:
    story.add("forget", result={"number": 1}, entity="window", id="x")
    story.send("window", "a", name="x")
    story.consume("window", ("a", 2), enqueued=0.25)
    story.send("window", "b", name="x")
    story.consume("window", ("b", 3), enqueued=1.0)


def forgotten_and_dropped(story: Story) -> None:
    story.send("window", "a", name="x")
    story.consume("window", ("a", 1))
    story.add("forget", result={"number": 2}, entity="window", id="x")
    story.send("window", "b", name="x")
    story.drop("window", "x", 3, 1)


def dropped_after_its_window(story: Story) -> None:
    story.send("window", "a", name="x")
    story.send("window", "b", name="x")
    story.consume("window", ("a", 1))
    story.drop("window", "x", 2, 1, seconds_apart=20.0)


def dropped_by_the_longer_window_of_another(story: Story) -> None:
    """The first was accepted with a window of 20 seconds, others with its id later with 40."""
    story.send("window", "a", name="x")
    story.consume("window", ("a", 1), enqueued=0.05)
    story.now = 30_000_000
    story.send("window", "b", name="x")
    story.drop("window", "x", 2, 1, seconds_apart=30.0)
    story.now = 80_000_000
    story.add("window", entity="window", window="PT40S")
    story.send("window", "c", name="x")
    story.consume("window", ("c", 3), enqueued=80.25)


def dropped_by_the_longer_window_of_its_original(story: Story) -> None:
    """It was sent with a window of 20 seconds; another, which was dropped correctly, with 40."""
    story.add("window", entity="window", window="PT40S")
    story.send("window", "a", name="x")
    story.send("window", "b", name="x")
    story.consume("window", ("a", 1))
    story.drop("window", "x", 2, 1)
    story.add("window", entity="window", window="PT20S")
    story.send("window", "between")
    story.consume("window", ("between", 3))
    story.now = 30_000_000
    story.send("window", "c", name="x")
    story.drop("window", "x", 4, 1, seconds_apart=29.0)


def dropped_for_another(story: Story) -> None:
    story.send("direct", "a", name="x")
    story.send("direct", "b", name="x")
    story.consume("direct", ("a", 1))
    story.drop("direct", "x", 2, 7)


def dropped_where_it_was_forwarded_to(story: Story) -> None:
    story.send("forwarding", "a")
    story.consume("target", ("a", 1))
    story.drop("target", "a", 2, 1)


def enqueued_too_early(story: Story) -> None:
    story.send("direct", "a", due=2.0, number=1)
    story.now = 3_000_000
    story.consume("direct", ("a", 2), enqueued=1.9)


def delivered_too_early(story: Story) -> None:
    story.send("direct", "a", due=2.0, number=1)
    story.consume("direct", ("a", 2), enqueued=2.1)


def delivered_too_early_by_a_clock_that_leaps(story: Story) -> None:
    story.add("fault", fault="clock leaps")
    story.send("direct", "a", due=20.0, number=1)
    story.consume("direct", ("a", 2), enqueued=20.1)


def delivered_after_it_was_cancelled(story: Story) -> None:
    story.send("direct", "a", due=1.0, number=1)
    story.add("cancel", entity="direct", uid="a", number=1)
    story.now = 3_000_000
    story.consume("direct", ("a", 2), enqueued=2.1)


def against_the_rule(story: Story) -> None:
    story.send("news", "a", colour="blue")
    routed(story, "a", ALL, COLLECTED, RED)


def not_where_the_rule_says(story: Story) -> None:
    story.send("news", "a", colour="red")
    routed(story, "a", ALL, COLLECTED, CHANGING)


def by_the_old_rule(story: Story) -> None:
    story.add("rule", place=CHANGING, colour="blue")
    story.send("news", "a", colour="red")
    routed(story, "a", ALL, COLLECTED, RED, CHANGING)


def from_the_deleted(story: Story) -> None:
    story.send("recreated", "a")
    story.add("delete", entity="recreated", incarnation=1)
    story.add("create", entity="recreated", incarnation=1)
    story.consume("recreated", ("a", 1))


def id_of_the_deleted(story: Story) -> None:
    story.send("recreated", "a", name="x")
    story.add("delete", entity="recreated", incarnation=1)
    story.add("create", entity="recreated", incarnation=1)
    story.send("recreated", "b", name="x", incarnation=1)
    story.drop("recreated", "x", 1, 1)


def later_with_a_lower_number(story: Story) -> None:
    story.send("direct", "a")
    story.send("direct", "b")
    story.consume("direct", ("b", 1))
    story.consume("direct", ("a", 2))


def batch_out_of_order(story: Story) -> None:
    story.send("direct", "a", "b")
    story.consume("direct", ("b", 1))
    story.consume("direct", ("a", 2))


def overtaken(story: Story) -> None:
    story.send("direct", "a", "b")
    story.consume("direct", ("b", 2))
    story.consume("direct", ("a", 1), enqueued=0.1)


def overtaken_in_a_session(story: Story) -> None:
    """A failed receiver is no excuse: the messages it held are delivered first again."""
    story.send("sessions", "a", "b", session="s")
    story.receive("sessions", outcome=UNKNOWN, via="amqp", session="s")
    story.consume("sessions", ("b", 2), session="s", via="amqp")
    story.consume("sessions", ("a", 1), session="s", via="amqp", enqueued=0.1)


def overtaken_long_after_a_failure(story: Story) -> None:
    story.receive("direct", outcome=UNKNOWN)
    story.now = 60_000_000
    overtaken(story)


def earlier_time_for_a_higher_number(story: Story) -> None:
    story.send("direct", "a", "b")
    story.consume("direct", ("a", 1), enqueued=5.0)
    story.consume("direct", ("b", 2), enqueued=4.0)


def something_left(story: Story) -> None:
    story.held["direct"] = {"active": 1}


def too_many_counted(story: Story) -> None:
    story.send("direct", "a")
    story.consume("direct", ("a", 1))
    story.count("direct", new=2, duplicates=0)


def completions_miscounted(story: Story) -> None:
    story.send("direct", "a")
    story.consume("direct", ("a", 1))
    story.count("direct", completed=2)


def duplicates_miscounted(story: Story) -> None:
    story.send("direct", "a")
    story.consume("direct", ("a", 1))
    story.count("direct", new=1, duplicates=1)


def subscription_miscounted(story: Story) -> None:
    story.send("news", "a")
    routed(story, "a", ALL, RED, CHANGING, COLLECTED)
    story.count(RED, new=2)


def dead_letters_miscounted(story: Story) -> None:
    story.count("plain", dead_lettered=1)


def quarantined(story: Story) -> None:
    story.count("direct", quarantined=1)


def failed_inside(story: Story) -> None:
    story.send("direct", "a", outcome=UNKNOWN, error="500: The service was unable to process the request")


def first_of_a_transaction_dropped(story: Story) -> None:
    """The second was scheduled, so its number was reserved and is lower."""
    story.send("deals", "a", "b", name="x", since=0, settles=0, numbers=[None, 1])
    story.now = 9_000_000
    story.consume("deals", ("b", 3))
    story.drop("deals", "x", 2, 1, seconds_apart=0.0)


def first_of_a_batch_dropped(story: Story) -> None:
    story.send("by-body", "a", "b", name="x")
    story.consume("by-body", ("b", 1))
    story.drop("by-body", "uid:a", 2 << 48, 1, seconds_apart=0.0)


def dropped_for_a_later_transaction(story: Story) -> None:
    story.send("deals", "a", name="x")
    story.send("deals", "b", name="x", since=0, settles=3)
    story.consume("deals", ("b", 1))
    story.drop("deals", "x", 2, 1)


def released_outside_of_its_transaction(story: Story) -> None:
    story.send("deals", "a")
    story.receive("deals", ("a", 1))
    story.settle("deals", "a", 1, outcome=FAILED, since=story.now, error="The lock supplied is invalid.")
    story.consume("deals", ("a", 1), count=1)


BROKEN: dict[Callable[[Story], None], str] = {
    accepted_and_never_seen: "lost",
    all_of_one_id_dropped: "lost, dropped wrongly",
    one_of_two_without_detection_missing: "lost",
    dropped_without_record: "lost",
    retry_gone_without_record: "lost",
    cancel_refused_and_gone: "lost",
    id_of_the_deleted: "lost, dropped wrongly",
    from_nowhere: "invented",
    refused_and_delivered: "invented",
    elsewhere: "invented",
    dropped_more_often_than_sent: "invented",
    forwarded_twice: "doubled",
    resubmitted_twice: "doubled",
    after_its_completion: "came back",
    after_it_was_deferred: "came back",
    completed_twice: "came back",
    abandoned_and_gone: "vanished",
    completion_refused_and_gone: "vanished",
    dead_letter_missing: "vanished",
    resubmitted_and_gone: "vanished",
    resubmission_refused_and_gone: "vanished",
    resubmission_unanswered_and_gone: "vanished",
    one_of_two_resubmitted_missing: "vanished",
    half_a_batch: "batch torn",
    both_delivered: "duplicate delivered",
    delivered_though_a_cancelled_one_had_its_id: "duplicate delivered",
    within_a_short_window: "duplicate delivered",
    forgotten_before_both: "duplicate delivered",
    forgotten_and_dropped: "remembers the forgotten",
    dropped_after_its_window: "dropped wrongly",
    dropped_by_the_longer_window_of_another: "dropped wrongly",
    dropped_by_the_longer_window_of_its_original: "dropped wrongly",
    dropped_for_another: "dropped wrongly",
    dropped_where_it_was_forwarded_to: "dropped wrongly",
    first_of_a_transaction_dropped: "dropped for a later one",
    first_of_a_batch_dropped: "dropped for a later one",
    dropped_for_a_later_transaction: "dropped for a later one",
    released_outside_of_its_transaction: "lock lost in a transaction",
    enqueued_too_early: "wrong time",
    delivered_too_early: "wrong time",
    delivered_too_early_by_a_clock_that_leaps: "wrong time",
    delivered_after_it_was_cancelled: "wrong time",
    against_the_rule: "routed wrongly",
    not_where_the_rule_says: "routed wrongly",
    by_the_old_rule: "routed wrongly",
    from_the_deleted: "remembers the deleted",
    later_with_a_lower_number: "numbered out of order",
    batch_out_of_order: "numbered out of order",
    overtaken: "delivered out of order",
    overtaken_in_a_session: "delivered out of order",
    overtaken_long_after_a_failure: "delivered out of order",
    earlier_time_for_a_higher_number: "enqueued time steps back",
    something_left: "left",
    too_many_counted: "miscounted",
    completions_miscounted: "miscounted",
    duplicates_miscounted: "miscounted",
    subscription_miscounted: "miscounted",
    dead_letters_miscounted: "miscounted",
    quarantined: "miscounted",
    failed_inside: "internal errors",
}
"""The histories, each with the rules that it breaks."""
