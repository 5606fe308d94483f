"""What time does by itself: locks run out, messages expire and fall due, are forwarded; idle entities are deleted."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from oncebus import amqp
from oncebus.broker.idle import without
from oncebus.broker.sending import Incoming, Origin, check, check_quota, row_of
from oncebus.entities import Catalogue, Entity, EntityError, NotFound, Queue, Topic
from oncebus.errors import OncebusError
from oncebus.inbox import Row
from oncebus.messages import NOBODY
from oncebus.store import Errand, Place, Store, Transfer

if TYPE_CHECKING:
    from oncebus.broker.core import Core

log = logging.getLogger(__name__)

EVERY_SECONDS = 0.1
SELDOM_SECONDS = 1.0
"""How often what need not be done at once."""
PULSE_SECONDS = 10.0
BACK_OFF_SECONDS = 0.5
UNUSED_SECONDS = 30.0
"""A body stays for so long after its message: who has just received that may still be reading it."""
_MOST_UNUSED = 10_000


class Chores:
    """One task that does them in turn, in steps of bounded length."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._woken = asyncio.Event()
        self._last_pulse = float("-inf")
        self._last_commit: int | None = None
        self._last_tidied = float("-inf")
        # Bodies that no message needs, and since when that is known.
        self._unused: dict[str, float] = {}
        # What is in the inbox and the store has yet to be told of.
        self._pumped: deque[tuple[list[Transfer], int]] = deque()
        self.trouble: str | None = None

    def wake(self) -> None:
        """Do a round now."""
        self._woken.set()

    async def run(self) -> None:
        """Do rounds for ever."""
        while True:
            try:
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self._round()
                self.trouble = None
            except Exception as error:
                # Whatever it is, to give up would let locks and messages live for ever.
                text = str(error) or type(error).__name__
                if self.trouble != text:
                    unexpected = None if isinstance(error, OncebusError) else error
                    log.error("A chore failed and will be tried again: %s", text, exc_info=unexpected)
                self.trouble = text
                await asyncio.sleep(BACK_OFF_SECONDS)

    async def _round(self) -> None:
        loop = asyncio.get_running_loop()
        await self._sweep()
        if loop.time() - self._last_tidied >= SELDOM_SECONDS:
            self._last_tidied = loop.time()
            await self._tidy()
        await self._pulse()
        # What follows stamps messages, and is not done while the clock is wrong.
        await self._fall_due()
        if await self._pump():
            self.wake()

    async def _pulse(self) -> None:
        """Send a row for no one through a new or idle pipeline: it shows that all is well, and keeps it warm."""
        loop = asyncio.get_running_loop()
        core = self._core
        newest = core.acceptor.last_commit
        if self._last_commit is not None and newest != self._last_commit:
            self._last_commit, self._last_pulse = newest, loop.time()
        if loop.time() - self._last_pulse < PULSE_SECONDS:
            return
        row = Row(
            entity=NOBODY,
            sequence=0,
            time=core.clock.last,
            window=0,
            message_id="",
            hops=0,
            size=0,
            head=b"",
            body=b"",
        )
        self._last_commit = await core.append(NOBODY, [row])
        self._last_pulse = loop.time()

    async def _sweep(self) -> None:
        core = self._core
        policies, now = core.policies, core.clock.now()
        sweep = await core.run(lambda store: store.expire_locks(policies, now))
        core.arrivals.tell(sweep.arrived)
        if sweep.more:
            self.wake()

    async def _fall_due(self) -> None:
        core = self._core
        # The time they are enqueued at, so it does not step back either.
        policies, now = core.policies, core.clock.stamp()
        sweep = await core.run(lambda store: store.due(policies, core.numbers.next, now))
        core.arrivals.tell(sweep.arrived)
        if sweep.more:
            self.wake()

    async def _tidy(self) -> None:
        core = self._core
        policies, now = core.policies, core.clock.now()

        def tidy(store: Store) -> tuple[set[Place], bool, list[str]]:
            sweep = store.expire(policies, now)
            store.prune_drops(now)
            return sweep.arrived, sweep.more, store.unused_blobs(_MOST_UNUSED)

        arrived, more, unused = await core.run(tidy)
        core.arrivals.tell(arrived)
        if more:
            self._last_tidied = float("-inf")
            self.wake()
        await self._delete_bodies(unused)
        await self._delete_idle()
        await core.refresh_sizes()

    async def _delete_bodies(self, unused: list[str]) -> None:
        core, now = self._core, asyncio.get_running_loop().time()
        self._unused = {name: self._unused.get(name, now) for name in unused}
        old = [name for name, since in self._unused.items() if now - since >= UNUSED_SECONDS]
        if old:
            await asyncio.to_thread(core.blobs.delete, old)
            await core.run(lambda store: store.forget_blobs(old))

    async def _delete_idle(self) -> None:
        core = self._core
        idle = core.accesses.idle(core.catalogue)
        if not idle:
            return
        # What waits for its time is use to come.
        waiting = await core.run(lambda store: {each.id for each in idle if store.counts(each.id).scheduled})
        chosen = [each for each in idle if each.id not in waiting]

        def delete(catalogue: Catalogue, now: int) -> Catalogue:  # noqa: ARG001
            still = {each.id for each in core.accesses.idle(catalogue)}
            for each in chosen:
                found: Entity | None = catalogue.entity(each.id)
                if found is not None and found.id in still:
                    log.info("'%s' is deleted: nobody has used it for long enough", found.path)
                    catalogue = without(catalogue, found)
            return catalogue

        if chosen:
            await core.change(delete)

    async def _pump(self) -> bool:
        """Append what is forwarded or fell due to the inbox; whether there may be more."""
        core = self._core
        if core.progress.position < core.left_behind:
            # What was appended before a crash, and not noted, has to be seen first: it must not go twice.
            return False
        await self._note_pumped()
        policies, appended = core.policies, core.acceptor.last_commit
        batch = await core.run(lambda store: store.pump_batch(policies, appended))
        by_target: dict[int, list[Transfer]] = {}
        for transfer in batch:
            by_target.setdefault(transfer.target, []).append(transfer)
        for target, transfers in by_target.items():
            await self._pump_to(target, transfers)
        return bool(batch)

    async def _pump_to(self, target: int, transfers: list[Transfer]) -> None:
        core = self._core
        taken: list[Transfer] = []
        refused: list[tuple[Transfer, str, str]] = []
        rows: list[Row] = []
        added = 0
        for transfer in transfers:
            try:
                row = self._row_of(transfer, added)
            except (EntityError, amqp.DecodeError, amqp.EncodeError) as error:
                # It will not do better the next time, and must not hold up the others.
                refused.append((transfer, type(error).__name__, str(error)))
            else:
                taken.append(transfer)
                rows.append(row)
                added += row["size"]
        for used in {target, *(transfer.message.entity for transfer in taken)} if taken else ():
            core.accesses.note(used)
        if rows:
            # Nothing is awaited between the stamps and this: the inbox keeps the order of time.
            self._pumped.append((taken, await core.append(target, rows)))
            await self._note_pumped()
        for transfer, reason, text in refused:
            await core.run(lambda store, t=transfer, r=reason, d=text: store.pump_refused([t], r, d))  # type: ignore[misc]

    async def _note_pumped(self) -> None:
        """Tell the store what is in the inbox; until it knows, none of that may be appended again."""
        while self._pumped:
            transfers, commit = self._pumped[0]
            await self._core.run(lambda store, t=transfers, c=commit: store.pumped(t, c))  # type: ignore[misc]
            self._pumped.popleft()

    def _row_of(self, transfer: Transfer, added: int) -> Row:
        """The row to append; `added` bytes go to the same target before it."""
        core, message = self._core, transfer.message
        target = core.catalogue.entity(transfer.target)
        if not isinstance(target, Queue | Topic):
            raise NotFound(str(transfer.target))
        is_judged, is_dead = transfer.errand is Errand.DUE, transfer.errand is Errand.FORWARD_DEAD_LETTER
        head, identity = message.head, amqp.message_id(message.head)
        if is_dead:
            why = {"DeadLetterReason": message.reason, "DeadLetterErrorDescription": message.description}
            head = amqp.with_application_properties(head, {name: text for name, text in why.items() if text})
        incoming = Incoming(
            head,
            message.body or b"",
            message.message_id if identity is None else amqp.id_text(identity),
            message.session,
            message.partition_key,
        )
        size = message.size + len(head) - len(message.head)
        if not is_judged:
            check(target, core.catalogue.namespace, [incoming])
            check_quota(target, core.held(target) + added, size)
        # Dead letters have no end: one that has expired begins anew where it is forwarded to.
        expires = None if is_dead else message.expires
        row = row_of(
            target,
            incoming,
            core.numbers,
            core.clock.stamp(),
            message.sequence,
            is_checked=not is_judged,
            blob=message.blob,
            origin=Origin(message.entity, message.sequence, transfer.hops, expires),
        )
        row["size"] = size
        return row
