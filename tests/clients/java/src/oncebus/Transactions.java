package oncebus;

import static oncebus.Stage.completed;
import static oncebus.Stage.in;
import static oncebus.Stage.left;
import static oncebus.Stage.messages;
import static oncebus.Stage.next;
import static oncebus.Stage.numbers;
import static oncebus.Stage.received;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import jakarta.jms.Connection;
import jakarta.jms.Session;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Transactions: all of their sends and settlements, or none. */
class Transactions {
    private static CompleteOptions completing(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    @Test
    void sendsArriveWhenTheTransactionIsCommitted() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            var receiver = client.receiver(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("0"), transaction);
            sender.sendMessages(messages(List.of("1", "2")), transaction);
            sender.sendMessage(new ServiceBusMessage("outside"));
            assertEquals(List.of("outside"), completed(receiver, 1));
            assertEquals(List.of(), left(receiver));
            sender.commitTransaction(transaction);
            assertEquals(numbers(3), completed(receiver, 3));
        }
    }

    @Test
    void sendsAreGoneWhenTheTransactionIsRolledBack() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("never"), transaction);
            sender.scheduleMessage(new ServiceBusMessage("never"), in(Duration.ofHours(1)), transaction);
            sender.rollbackTransaction(transaction);
            sender.sendMessage(new ServiceBusMessage("later"));
            var receiver = client.receiver(queue);
            assertEquals(List.of("later"), completed(receiver, 1));
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void settlementsHoldWhenTheTransactionIsCommitted() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(4)));
            var receiver = client.receiver(queue);
            var found = received(receiver, 4);
            var transaction = receiver.createTransaction();
            receiver.complete(found.get(0), completing(transaction));
            receiver.abandon(found.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(found.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(found.get(3), new DeadLetterOptions().setDeadLetterReason("why")
                .setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            assertEquals(List.of("1"), completed(receiver, 1));
            receiver.complete(receiver.receiveDeferredMessage(found.get(2).getSequenceNumber()));
            assertEquals(List.of(), left(receiver));
            assertEquals("why", next(client.deadLetters(queue)).getDeadLetterReason());
        }
    }

    @Test
    void aMessageComesBackAfterARollback() throws Exception {
        try (Client client = new Client()) {
            String queue = take("short");
            client.sender(queue).sendMessage(new ServiceBusMessage("a"));
            var receiver = client.receiver(queue);
            var message = next(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(message, completing(transaction));
            receiver.rollbackTransaction(transaction);
            assertEquals(List.of("a"), left(receiver));
            // The client itself takes the message for settled, so it comes back when its lock expires.
            var again = next(receiver);
            assertEquals(1, again.getDeliveryCount());
            receiver.complete(again);
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void aMessageMovesFromOneQueueToAnother() throws Exception {
        var retries = new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(30));
        try (Client client = new Client(new ServiceBusClientBuilder()
                .connectionString(Stage.given("SERVICEBUS_CONNECTION_STRING"))
                .retryOptions(retries)
                .enableCrossEntityTransactions()); Client other = new Client()) {
            String from = take("plain");
            String to = take("plain");
            other.sender(from).sendMessages(messages(List.of("a", "b")));
            var receiver = client.receiver(from);
            var found = received(receiver, 2);
            var sender = client.sender(to);

            var transaction = sender.createTransaction();
            receiver.complete(found.get(0), completing(transaction));
            sender.sendMessage(new ServiceBusMessage("moved a"), transaction);
            sender.commitTransaction(transaction);

            transaction = sender.createTransaction();
            receiver.complete(found.get(1), completing(transaction));
            sender.sendMessage(new ServiceBusMessage("moved b"), transaction);
            sender.rollbackTransaction(transaction);

            var target = other.receiver(to);
            assertEquals(List.of("moved a"), completed(target, 1));
            assertEquals(List.of("b"), left(other.receiver(from)));
            assertEquals(List.of(), left(target));
        }
    }

    @Test
    void duplicatesInATransactionAreDropped() throws Exception {
        try (Client client = new Client()) {
            String queue = take("detecting");
            var sender = client.sender(queue);
            sender.sendMessage(Stage.message("first", "a"));
            var transaction = sender.createTransaction();
            sender.sendMessage(Stage.message("again", "a"), transaction);
            sender.sendMessage(Stage.message("last", "b"), transaction);
            sender.commitTransaction(transaction);
            var receiver = client.receiver(queue);
            assertEquals(List.of("first", "last"), completed(receiver, 2));
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void anEndedTransactionIsRefused() throws Exception {
        try (Client client = Client.once()) {
            var sender = client.sender(take("plain"));
            var transaction = sender.createTransaction();
            sender.commitTransaction(transaction);
            var error = assertThrows(RuntimeException.class, () -> sender.commitTransaction(transaction));
            assertTrue(error.toString().contains("transaction"), error::toString);
        }
    }

    @Test
    void aJmsSessionSendsAllOrNothing() throws Exception {
        String queue = take("plain");
        try (Connection connection = Jms.connected()) {
            Session session = connection.createSession(Session.SESSION_TRANSACTED);
            Jms.send(session, queue, List.of("never", "never"));
            session.rollback();
            Jms.send(session, queue, List.of("a", "b"));
            session.commit();
            Session plain = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var consumer = plain.createConsumer(plain.createQueue(queue));
            assertEquals(List.of("a", "b"), Jms.texts(consumer, 2));
            assertNull(consumer.receive(Stage.SHORT.toMillis()));
        }
    }

    @Test
    void aJmsSessionMovesAMessageFromOneQueueToAnother() throws Exception {
        String from = take("plain");
        String to = take("plain");
        try (Connection connection = Jms.connected(); Client client = new Client()) {
            client.sender(from).sendMessage(new ServiceBusMessage("a"));
            Session session = connection.createSession(Session.SESSION_TRANSACTED);
            // The first link of a session decides where it may receive from.
            var consumer = session.createConsumer(session.createQueue(from));
            assertNotNull(consumer.receive(Stage.PATIENCE.toMillis()));
            Jms.send(session, to, List.of("never"));
            session.rollback();
            var again = consumer.receive(Stage.PATIENCE.toMillis());
            assertNotNull(again);
            assertTrue(again.getJMSRedelivered());
            Jms.send(session, to, List.of("moved"));
            session.commit();
            Session plain = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            assertEquals(List.of("moved"), Jms.texts(plain.createConsumer(plain.createQueue(to)), 1));
            assertEquals(List.of(), left(client.receiver(from)));
            assertEquals(List.of(), left(client.receiver(to)));
        }
    }
}
