package oncebus;

import static oncebus.Stage.bodies;
import static oncebus.Stage.completed;
import static oncebus.Stage.left;
import static oncebus.Stage.next;
import static oncebus.Stage.received;
import static oncebus.Stage.refused;
import static oncebus.Stage.sleep;
import static oncebus.Stage.take;
import static oncebus.Stage.until;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Sessions. */
class Sessions {
    private static List<ServiceBusMessage> of(String session, String... bodies) {
        return Stream.of(bodies).map(body -> new ServiceBusMessage(body).setSessionId(session)).toList();
    }

    @Test
    void aSessionIsReceivedInOrderByTheOneThatHoldsIt() throws Exception {
        try (Client client = new Client(); Client other = Client.once()) {
            String queue = take("sessions");
            var sender = client.sender(queue);
            sender.sendMessages(of("a", "1"));
            sender.sendMessages(of("b", "other"));
            sender.sendMessages(of("a", "2", "3"));
            var holder = client.session(queue, "a");
            assertEquals("a", holder.getSessionId());
            refused(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> other.session(queue, "a"));
            var after = client.opened(client.sessions(queue).acceptNextSession());
            assertEquals("b", after.getSessionId());
            assertEquals(List.of("other"), completed(after, 1));

            var found = received(holder, 3);
            assertEquals(List.of("1", "2", "3"), bodies(found));
            assertEquals("a", found.get(0).getSessionId());
            holder.complete(found.get(0));
            holder.defer(found.get(1));
            holder.abandon(found.get(2));
            var deferred = holder.receiveDeferredMessage(found.get(1).getSequenceNumber());
            assertEquals("2", deferred.getBody().toString());
            holder.complete(deferred);
            var again = next(holder);
            assertEquals("3", again.getBody().toString());
            assertEquals(1, again.getDeliveryCount());
            holder.complete(again);
            assertEquals(List.of(), left(holder));
        }
    }

    @Test
    void theStateOfASessionStaysWithIt() throws Exception {
        // Another connection, because the client keeps using a link of the same name while it closes.
        try (Client client = new Client(); Client other = new Client()) {
            String queue = take("sessions");
            byte[] state = "step 1".getBytes(StandardCharsets.UTF_8);
            try (var first = client.sessions(queue).acceptSession("a")) {
                assertNull(first.getSessionState());
                first.setSessionState(state);
            }
            var second = other.session(queue, "a");
            assertArrayEquals(state, second.getSessionState());
            second.setSessionState(null);
            assertNull(second.getSessionState());
        }
    }

    @Test
    void aSessionThatIsRenewedOutlivesItsFirstLock() throws Exception {
        try (Client client = new Client()) {
            String queue = take("short-sessions");
            client.sender(queue).sendMessages(of("a", "1"));
            var holder = client.session(queue, "a");
            var message = next(holder);
            OffsetDateTime before = holder.renewSessionLock();
            for (int times = 0; times < 2; times++) {
                sleep(Duration.ofSeconds(6));
                assertTrue(holder.renewSessionLock().isAfter(before));
            }
            holder.complete(message);
            assertEquals(List.of(), left(holder));
        }
    }

    @Test
    void aSessionWithAnExpiredLockIsLostAndFreeForAnother() throws Exception {
        try (Client client = Client.once(); Client other = new Client()) {
            String queue = take("short-sessions");
            client.sender(queue).sendMessages(of("a", "1"));
            var holder = client.session(queue, "a");
            var message = next(holder);
            sleep(Duration.ofSeconds(12));
            refused(ServiceBusFailureReason.SESSION_LOCK_LOST, () -> holder.complete(message));
            var another = other.session(queue, "a");
            var again = next(another);
            assertEquals(1, again.getDeliveryCount());
            another.complete(again);
        }
    }

    @Test
    void aClosedReceiverReleasesItsSessionAndItsMessages() throws Exception {
        try (Client client = new Client()) {
            String queue = take("sessions");
            client.sender(queue).sendMessages(of("a", "1", "2"));
            try (var holder = client.sessions(queue).acceptSession("a")) {
                holder.complete(received(holder, 2).get(0));
            }
            var after = client.opened(client.sessions(queue).acceptNextSession());
            var again = next(after);
            assertEquals("2", again.getBody().toString());
            assertEquals(1, again.getDeliveryCount());
            after.complete(again);
        }
    }

    @Test
    void aSessionIsReceivedAndDeleted() throws Exception {
        try (Client client = new Client()) {
            String queue = take("sessions");
            client.sender(queue).sendMessages(of("a", "1", "2"));
            var sessions = client.opened(client.builder.sessionReceiver().queueName(queue)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
            var holder = client.opened(sessions.acceptSession("a"));
            assertEquals(List.of("1", "2"), bodies(received(holder, 2)));
            assertEquals(List.of(), left(holder));
        }
    }

    @Test
    void aClientTimesOutWithoutANextSession() throws Exception {
        var retries = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(3));
        try (Client client = new Client(Stage.given("SERVICEBUS_CONNECTION_STRING"), retries)) {
            var sessions = client.sessions(take("sessions"));
            var error = assertThrows(RuntimeException.class, sessions::acceptNextSession);
            assertTrue(error.toString().contains("imeout"), error::toString);
        }
    }

    @Test
    void aProcessorHoldsSeveralSessionsInOrderAndRenewsThem() throws Exception {
        try (Client client = new Client()) {
            String queue = take("short-sessions");
            var sender = client.sender(queue);
            for (String session : List.of("a", "b", "c")) {
                sender.sendMessages(of(session, "1", "2", "3"));
            }
            Map<String, Queue<String>> found = new ConcurrentHashMap<>();
            Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
            client.start(client.builder.sessionProcessor()
                .queueName(queue)
                .maxConcurrentSessions(2)
                .sessionIdleTimeout(Duration.ofSeconds(2))
                .processMessage(context -> {
                    var message = context.getMessage();
                    String session = message.getSessionId();
                    if (session.equals("a") && message.getBody().toString().equals("2")) {
                        sleep(Duration.ofSeconds(12));
                    }
                    found.computeIfAbsent(session, each -> new ConcurrentLinkedQueue<>())
                        .add(message.getBody().toString());
                })
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient());
            until(() -> found.values().stream().mapToInt(Queue::size).sum() >= 9, "9 messages");
            for (String session : List.of("a", "b", "c")) {
                assertEquals(List.of("1", "2", "3"), List.copyOf(found.get(session)));
            }
            assertEquals(List.of(), List.copyOf(errors));
        }
    }
}
