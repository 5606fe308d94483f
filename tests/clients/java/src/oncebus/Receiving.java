package oncebus;

import static oncebus.Stage.arrived;
import static oncebus.Stage.assertEmpty;
import static oncebus.Stage.bodies;
import static oncebus.Stage.completed;
import static oncebus.Stage.left;
import static oncebus.Stage.messages;
import static oncebus.Stage.next;
import static oncebus.Stage.numbers;
import static oncebus.Stage.received;
import static oncebus.Stage.refused;
import static oncebus.Stage.sleep;
import static oncebus.Stage.take;
import static oncebus.Stage.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;

/** Receives and settles in every way this client has. */
class Receiving {
    @Test
    void everySettlementDoesWhatItSays() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            List<ServiceBusMessage> sent = messages(numbers(4));
            sent.forEach(each -> each.getApplicationProperties().put("n", 1));
            client.sender(queue).sendMessages(sent);
            var receiver = client.receiver(queue);
            var found = received(receiver, 4);
            receiver.complete(found.get(0));
            receiver.abandon(found.get(1), new AbandonOptions().setPropertiesToModify(Map.of("n", 2, "why", "later")));
            receiver.defer(found.get(2), new DeferOptions().setPropertiesToModify(Map.of("n", 3)));
            receiver.deadLetter(found.get(3), new DeadLetterOptions()
                .setDeadLetterReason("why").setDeadLetterErrorDescription("in words")
                .setPropertiesToModify(Map.of("n", 4)));

            var again = next(receiver);
            assertEquals("1", again.getBody().toString());
            assertEquals(1, again.getDeliveryCount());
            assertEquals(Map.of("n", 2, "why", "later"), again.getApplicationProperties());
            receiver.complete(again);

            var deferred = receiver.receiveDeferredMessage(found.get(2).getSequenceNumber());
            assertEquals("2", deferred.getBody().toString());
            assertEquals(ServiceBusMessageState.DEFERRED, deferred.getState());
            assertEquals(3, deferred.getApplicationProperties().get("n"));
            receiver.complete(deferred);

            var dead = client.deadLetters(queue);
            var letter = next(dead);
            assertEquals("3", letter.getBody().toString());
            assertEquals("why", letter.getDeadLetterReason());
            assertEquals("in words", letter.getDeadLetterErrorDescription());
            assertEquals(4, letter.getApplicationProperties().get("n"));
            dead.complete(letter);
            assertEquals(List.of(), left(receiver));
            assertEquals(List.of(), left(dead));
        }
    }

    @Test
    void aMessageDeliveredTooOftenIsDeadLettered() throws Exception {
        try (Client client = new Client()) {
            String queue = take("twice");
            client.sender(queue).sendMessage(new ServiceBusMessage("bad"));
            var receiver = client.receiver(queue);
            for (int count = 0; count < 2; count++) {
                var message = next(receiver);
                assertEquals(count, message.getDeliveryCount());
                receiver.abandon(message);
            }
            var letter = next(client.deadLetters(queue));
            assertEquals("bad", letter.getBody().toString());
            assertEquals("MaxDeliveryCountExceeded", letter.getDeadLetterReason());
        }
    }

    @Test
    void deferredMessagesAreReceivedOnlyByTheirNumbers() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(3)));
            var receiver = client.receiver(queue);
            var found = received(receiver, 3);
            found.forEach(receiver::defer);
            List<Long> sequence = found.stream().map(each -> each.getSequenceNumber()).toList();
            assertEmpty(receiver);
            assertEquals(numbers(3), left(receiver));
            var again = receiver.receiveDeferredMessageBatch(sequence).stream().toList();
            assertEquals(numbers(3), bodies(again));
            receiver.abandon(again.get(0));
            receiver.deadLetter(again.get(1));
            receiver.complete(again.get(2));
            assertEquals(List.of("0"), left(receiver));
            assertEquals(List.of("1"), completed(client.deadLetters(queue), 1));
            // The client takes the broker's "message not found" for an empty answer.
            assertEquals(List.of(), bodies(receiver.receiveDeferredMessageBatch(sequence.subList(2, 3))));
            receiver.complete(receiver.receiveDeferredMessage(sequence.get(0)));
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void messagesArePeekedFromTheLastPositionOrFromANumber() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(30)));
            var receiver = client.receiver(queue);
            arrived(receiver, 30);
            var another = client.receiver(queue);
            List<String> seen = bodies(another.peekMessages(20));
            seen.addAll(bodies(another.peekMessages(20)));
            assertEquals(numbers(30), seen);
            assertNull(another.peekMessage());
            var one = receiver.peekMessage(17);
            assertEquals("16", one.getBody().toString());
            assertEquals(17, one.getSequenceNumber());
            assertEquals(ServiceBusMessageState.ACTIVE, one.getState());
            assertNull(one.getLockedUntil());
        }
    }

    @Test
    void aReceivedAndDeletedMessageIsRemovedAtOnce() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(30)));
            var receiver = client.deleting(queue);
            assertEquals(numbers(30), bodies(received(receiver, 30)));
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void aReceiverOfAnEmptyQueueTimesOutAndLaterGetsNewMessages() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var receiver = client.receiver(queue);
            assertEmpty(receiver);
            assertEmpty(receiver);
            client.sender(queue).sendMessage(new ServiceBusMessage("came"));
            assertEquals(List.of("came"), completed(receiver, 1));
        }
    }

    @Test
    void prefetchedMessagesComeInOrder() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(20)));
            var receiver = client.opened(client.builder.receiver().queueName(queue).prefetchCount(20).buildClient());
            List<String> found = completed(receiver, 5);
            found.addAll(completed(receiver, 15));
            assertEquals(numbers(20), found);
        }
    }

    @Test
    void aRenewedLockOutlivesItsFirstExpiry() throws Exception {
        try (Client client = new Client()) {
            String queue = take("short");
            client.sender(queue).sendMessage(new ServiceBusMessage("a"));
            var receiver = client.receiver(queue);
            var message = next(receiver);
            for (int times = 0; times < 2; times++) {
                sleep(Duration.ofSeconds(6));
                assertTrue(receiver.renewMessageLock(message).isAfter(message.getLockedUntil()));
            }
            receiver.complete(message);
            assertEquals(List.of(), left(receiver));
        }
    }

    @Test
    void anExpiredLockIsReportedAndTheMessageIsDeliveredAgain() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("short");
            client.sender(queue).sendMessage(new ServiceBusMessage("a"));
            var receiver = client.receiver(queue);
            var message = next(receiver);
            sleep(Duration.ofSeconds(11));
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(message));
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(message));
            var again = next(receiver);
            assertEquals(1, again.getDeliveryCount());
            receiver.complete(again);
        }
    }

    @Test
    void aProcessorGetsEveryMessageOnceSeveralAtATimeAndRenewsItsLocks() throws Exception {
        try (Client client = new Client()) {
            String queue = take("short");
            client.sender(queue).sendMessages(messages(numbers(20)));
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
            client.start(client.builder.processor()
                .queueName(queue)
                .maxConcurrentCalls(5)
                .processMessage(context -> {
                    String body = context.getMessage().getBody().toString();
                    if (body.equals("7")) {
                        sleep(Duration.ofSeconds(12));
                    }
                    found.add(body);
                })
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient());
            until(() -> found.size() >= 20, "20 messages");
            // The processor completes each message after the callback.
            arrived(client.receiver(queue), 0);
            assertEquals(new TreeSet<>(numbers(20)), new TreeSet<>(found));
            assertEquals(20, found.size());
            assertEquals(List.of(), List.copyOf(errors));
        }
    }

    @Test
    void aProcessorThatFailsGetsTheMessageAgain() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            client.sender(queue).sendMessage(new ServiceBusMessage("a"));
            Queue<Long> counts = new ConcurrentLinkedQueue<>();
            Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
            client.start(client.builder.processor()
                .queueName(queue)
                .processMessage(context -> {
                    counts.add(context.getMessage().getDeliveryCount());
                    if (counts.size() < 3) {
                        throw new IllegalArgumentException("not yet");
                    }
                })
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient());
            until(() -> counts.size() >= 3, "3 deliveries");
            arrived(client.receiver(queue), 0);
            assertEquals(List.of(0L, 1L, 2L), List.copyOf(counts));
            assertEquals(2, errors.size());
        }
    }
}
