"""Sound histories: they contain failures that a correct broker may cause."""

from __future__ import annotations

from .entities import CHANGING
from .history import FAILED, UNKNOWN
from .stories import ALL, COLLECTED, LETTERS, RED, Story, routed


def plainly(story: Story) -> None:
    story.send("direct", "a", "b")
    story.send("direct", "c")
    story.consume("direct", ("a", 1))
    story.consume("direct", ("b", 2))
    story.consume("direct", ("c", 3))
    story.count("direct", new=3, duplicates=0, dead_lettered=0)


def retried(story: Story) -> None:
    """The first answer is lost. The retry is a duplicate, or is the accepted one."""
    for name, (first, second) in {"x": (1, 2), "y": (0, 3)}.items():
        story.send("direct", f"{name}1", name=name, outcome=UNKNOWN)
        story.send("direct", f"{name}2", name=name)
        if first:
            story.drop("direct", name, second, first)
            story.consume("direct", (f"{name}1", first))
        else:
            story.consume("direct", (f"{name}2", second))
    story.count("direct", new=2, duplicates=1)


def refused(story: Story) -> None:
    story.send("direct", "a", outcome=FAILED)
    story.send("direct", "a~", name="a")
    story.consume("direct", ("a~", 1))


def unanswered(story: Story) -> None:
    """A completion gets no answer. The message comes back, or does not."""
    story.send("plain", "a", "b")
    for number, uid in enumerate("ab", 1):
        story.receive("plain", (uid, number))
        story.settle("plain", uid, number, outcome=UNKNOWN)
    story.receive("plain", ("b", 2), count=1)
    story.settle("plain", "b", 2)


def lock_lost(story: Story) -> None:
    """A receiver loses its lock. Another one gets the message, and the first one's settlement is refused."""
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.consume("plain", ("a", 1), count=1)
    story.settle("plain", "a", 1, outcome=FAILED)


def hidden(story: Story) -> None:
    """A receiver fails while it holds the first message. The second message is delivered before it."""
    story.send("direct", "a", "b")
    story.receive("direct", outcome=UNKNOWN)
    story.consume("direct", ("b", 2))
    story.consume("direct", ("a", 1), enqueued=0.1)


def concurrent(story: Story) -> None:
    """Two senders and two receivers work at the same time, so neither is first."""
    begun = story.now
    story.send("direct", "a", begun=begun)
    story.send("direct", "b", begun=begun)
    begun = story.now
    story.receive("direct", ("a", 2), begun=begun)
    story.receive("direct", ("b", 1), begun=begun, enqueued=0.1)
    story.settle("direct", "a", 2)
    story.settle("direct", "b", 1)


def scheduled(story: Story) -> None:
    story.send("direct", "a", due=2.0, number=1)
    story.send("direct", "b", due=9.0, number=2)
    story.send("direct", "c", due=9.0, number=3)
    story.add("cancel", entity="direct", uid="b", number=2)
    story.add("cancel", UNKNOWN, entity="direct", uid="c", number=3)
    story.now = 3_000_000
    story.consume("direct", ("a", 4), enqueued=2.1)
    story.count("direct", new=3, duplicates=0)


def forgotten(story: Story) -> None:
    """The second is new because of the forget. The third is its duplicate; the last forget may come before or after."""
    story.send("window", "a", name="x")
    story.consume("window", ("a", 1), enqueued=0.05)
    story.add("forget", result={"number": 2}, entity="window", id="x")
    story.send("window", "b", name="x")
    story.consume("window", ("b", 3), enqueued=1.0)
    story.send("window", "c", name="x")
    story.drop("window", "x", 4, 3)
    story.add("forget", UNKNOWN, entity="window", id="x")
    story.send("window", "d", name="x")
    story.consume("window", ("d", 6), enqueued=2.0)


def scheduled_with_a_clock_ahead(story: Story) -> None:
    story.add("fault", fault="clock ahead")
    story.send("direct", "a", due=20.0, number=1)
    story.consume("direct", ("a", 2))


def dead_lettered(story: Story) -> None:
    """The broker resubmits one with a new number; its receiver resubmits another as a new message."""
    story.send("plain", "a", "b")
    for number, uid in enumerate("ab", 1):
        story.receive("plain", (uid, number))
        story.settle("plain", uid, number, "dead-letter")
    story.resubmit("plain", ("a", 1))
    story.consume("plain", ("a", 3))
    story.send("plain", "b+")
    story.consume("plain" + LETTERS, ("b", 2))
    story.consume("plain", ("b+", 4))
    story.count("plain", new=3, dead_lettered=2)


def resubmitted_at_once(story: Story) -> None:
    """Two clients resubmit a letter, and one succeeds. Another attempt has an unknown outcome, and its letter stays."""
    story.send("plain", "a", "b")
    for number, uid in enumerate("ab", 1):
        story.receive("plain", (uid, number))
        story.settle("plain", uid, number, "dead-letter")
    story.resubmit("plain", ("a", 1), ("b", 2), done=1)
    story.resubmit("plain", ("a", 1), done=0)
    story.resubmit("plain", ("b", 2), outcome=UNKNOWN)
    story.consume("plain", ("a", 3))
    story.consume("plain" + LETTERS, ("b", 2))


def resubmitted_in_a_subscription(story: Story) -> None:
    """It gets its number before a message that was accepted earlier and is still on its way."""
    story.send("news", "a", colour="blue")
    story.receive(ALL, ("a", 1))
    story.settle(ALL, "a", 1, "dead-letter")
    story.send("news", "b", colour="blue")
    story.resubmit(ALL, ("a", 1))
    story.consume(ALL, ("a", 2), enqueued=5.0)
    story.consume(ALL, ("b", 3), enqueued=4.0)
    for number, uid in enumerate("ab", 1):
        story.consume(COLLECTED, (uid, number))


def deferred(story: Story) -> None:
    story.send("plain", "a")
    story.receive("plain", ("a", 1))
    story.settle("plain", "a", 1, "defer")
    story.receive("plain", ("a", 1), count=1, deferred=1)
    story.settle("plain", "a", 1)


def by_rules(story: Story) -> None:
    """The rule of one subscription changes while the second message is sent."""
    story.send("news", "a", colour="red")
    begun = story.now
    story.add("rule", place=CHANGING, colour="blue")
    story.send("news", "b", colour="green", begun=begun)
    story.send("news", "c", colour="red")
    routed(story, "a", ALL, RED, CHANGING, COLLECTED)
    for place in (ALL, COLLECTED):
        story.consume(place, ("b", 2))
    story.consume(ALL, ("c", 3))
    story.consume(RED, ("c", 2))
    story.consume(COLLECTED, ("c", 3))
    story.count("news", new=3, duplicates=0, unrouted=0)
    story.count(RED, new=2)


def in_windows(story: Story) -> None:
    """The same id comes again after 21 seconds, and within a longer window."""
    story.send("window", "a", name="x")
    story.consume("window", ("a", 1), enqueued=0.05)
    story.now = 21_000_000
    story.add("window", entity="window", window="PT40S")
    story.send("window", "b", name="x")
    story.consume("window", ("b", 2), enqueued=21.25)
    story.send("window", "c", name="x")
    story.drop("window", "x", 3, 2)
    story.now = 52_000_000
    story.send("window", "d", name="x")
    story.drop("window", "x", 4, 2, seconds_apart=30.75)


def made_again(story: Story) -> None:
    """Its messages are deleted, and its ids count as new."""
    story.send("recreated", "a", name="x")
    story.add("delete", entity="recreated", incarnation=1)
    story.add("create", entity="recreated", incarnation=1)
    story.send("recreated", "b", name="x", incarnation=1)
    story.consume("recreated", ("b", 1))
    story.count("recreated", new=1, duplicates=0)


def transacted(story: Story) -> None:
    """Of equal ids, the first in the inbox wins. With settlements, messages may come into it after the answer."""
    story.send("deals", "a", "b", name="x", since=0, settles=0, numbers=[None, 1])
    story.consume("deals", ("a", 2))
    story.drop("deals", "x", 1, 2, seconds_apart=0.0)
    story.send("deals", "c", name="y", since=0, settles=1)
    story.send("deals", "d", name="y")
    story.consume("deals", ("d", 3))
    story.drop("deals", "y", 4, 3)
    story.now = 9_000_000
    story.send("deals", "e", outcome=FAILED, since=0, settles=1, error="lock-lost, long after")


def lock_lost_by_a_clock_ahead(story: Story) -> None:
    story.send("deals", "a")
    story.add("fault", fault="clock ahead")
    story.send("deals", "b", outcome=FAILED, since=0, settles=1, error="message-lock-lost")
    story.now += 60_000_000
    story.consume("deals", ("a", 1), enqueued=0.1)


def in_partitions(story: Story) -> None:
    """The numbers of two partitions cannot be compared, and the message id shows which message was dropped."""
    there = 3 << 48
    story.send("by-property", "a", "b", name="x")
    story.send("by-property", "c")
    story.consume("by-property", ("a", there + 1), enqueued=0.1)
    story.consume("by-property", ("c", 1), enqueued=0.3)
    story.drop("by-property", "uid:b", 2 << 48, there + 1)


SOUND = [
    plainly,
    retried,
    refused,
    unanswered,
    lock_lost,
    hidden,
    concurrent,
    scheduled,
    forgotten,
    scheduled_with_a_clock_ahead,
    dead_lettered,
    resubmitted_at_once,
    resubmitted_in_a_subscription,
    deferred,
    by_rules,
    in_windows,
    made_again,
    transacted,
    lock_lost_by_a_clock_ahead,
    in_partitions,
]
