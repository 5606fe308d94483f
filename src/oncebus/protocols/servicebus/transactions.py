"""The link on which a client declares and discharges transactions, and what the client's other links need for them."""

from __future__ import annotations

from oncebus.amqp.conditions import NOT_IMPLEMENTED
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.link import Link
from oncebus.amqp.outcomes import Accepted, AmqpError, Declared, DeliveryState, Rejected, TransactionalState
from oncebus.amqp.performatives import Coordinator
from oncebus.amqp.transactions import Declare, Discharge, read_control
from oncebus.broker.transactions import Transaction, UnknownTransaction, Via, Work
from oncebus.model.entities import Entity
from oncebus.protocols.servicebus.attached import Attached, LinkConnection
from oncebus.protocols.servicebus.errors import AmqpRefused
from oncebus.protocols.servicebus.nodes import TRANSACTIONS

_LARGEST = 64 << 10
_NO_VIA = object()


class TransactionRequests(Attached[IncomingLink]):
    """Begins and ends transactions as the client asks. When the link ends, so do the transactions that it declared.

    It needs no token: a transaction holds nothing before a link that needs one uses it.
    """

    def __init__(self, client: LinkConnection, link: IncomingLink) -> None:
        super().__init__(client, link, TRANSACTIONS)

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept(max_message_size=_LARGEST)
        self.is_accepted = True
        self.link.grant(self.front.limits.controls)

    def on_delivery(self, delivery: Delivery) -> None:
        """See `Attached`."""
        try:
            match read_control(delivery.payload):
                case Declare() as declare:
                    self._declare(delivery, declare)
                case Discharge() as discharge:
                    self._discharge(delivery, discharge)
        except Exception as error:
            self._answer(delivery, Rejected(self.client.refusal(error).error))
        if self.link.credit < self.front.limits.controls // 2:
            self.link.grant(self.front.limits.controls)

    def on_end(self) -> None:
        """See `Attached`."""
        self.client.transactions.roll_back_of(self)

    def _declare(self, delivery: Delivery, declare: Declare) -> None:
        if declare.global_id is not None:
            raise AmqpRefused(NOT_IMPLEMENTED, 501, "Distributed transactions are not supported.")
        if not delivery.settled:
            limits = self.front.limits
            most = limits.transactions if self.link.connection.is_trusted else limits.stranger_transactions
            self._answer(delivery, Declared(self.client.transactions.declare(most, self).id))

    def _discharge(self, delivery: Delivery, discharge: Discharge) -> None:
        transaction = self.client.transactions.take(discharge.txn_id)
        if discharge.fail:
            transaction.roll_back()
            self._answer(delivery, Accepted())
        else:
            self.front.tasks.start(self._commit(delivery, transaction))

    async def _commit(self, delivery: Delivery, transaction: Transaction) -> None:
        try:
            await transaction.commit()
        except Exception as error:
            # Some clients need an error here.
            self._answer(delivery, Rejected(self.client.refusal(error).error))
        else:
            self._answer(delivery, Accepted())

    def _answer(self, delivery: Delivery, outcome: DeliveryState) -> None:
        self.link.settle([delivery], outcome)
        self.client.flush()


def note_link(link: Link) -> None:
    """Record a new link in its AMQP session. If the first one is to a coordinator, the session goes via an entity."""
    if link.session.context is None:
        link.session.context = Via() if isinstance(link.attach.target, Coordinator) else _NO_VIA


def go_via(link: Link, entity: Entity, *, receives: bool) -> None:
    """Record the entity of a link. Raises `InvalidOperation` if its AMQP session goes via another entity."""
    via = _via_of(link)
    if via is not None:
        via.attach(entity, receives=receives)


def work_of(client: LinkConnection, link: Link, state: DeliveryState | None) -> Work | None:
    """Begin a request in the transaction that a delivery state names; return None if it names none.

    Raises `UnknownTransaction`.
    """
    return client.transactions.work(state.txn_id, _via_of(link)) if isinstance(state, TransactionalState) else None


def answer_in(state: DeliveryState | None, error: AmqpError, reason: Exception) -> DeliveryState:
    """Return the answer that refuses a delivery. It names the delivery's transaction if that is known."""
    refused = Rejected(error)
    if isinstance(state, TransactionalState) and not isinstance(reason, UnknownTransaction):
        return TransactionalState(state.txn_id, refused)
    return refused


def _via_of(link: Link) -> Via | None:
    context = link.session.context
    return context if isinstance(context, Via) else None
