package oncebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.function.Executable;

/** What all scenarios share: entities, waiting, and ways to receive. */
final class Stage {
    /** How long a message may take to arrive on a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(60);

    /** How long to wait for a message that should not come. */
    static final Duration SHORT = Duration.ofSeconds(1);

    private static final Map<String, Deque<String>> LEFT = left();

    private Stage() {}

    private static Map<String, Deque<String>> left() {
        try {
            var type = new TypeReference<Map<String, ConcurrentLinkedDeque<String>>>() {};
            return Map.copyOf(new ObjectMapper().readValue(System.getenv("ENTITIES"), type));
        } catch (Exception error) {
            throw new IllegalStateException("the variable ENTITIES", error);
        }
    }

    /** Return the value of an environment variable that must be set. */
    static String given(String variable) {
        String value = System.getenv(variable);
        if (value == null) {
            throw new IllegalStateException("the variable " + variable + " is not set");
        }
        return value;
    }

    /** Return the port in a variable. */
    static int port(String variable) {
        return Integer.parseInt(given(variable));
    }

    /** Return the name of an entity that no other scenario uses. */
    static String take(String kind) {
        String name = LEFT.get(kind).poll();
        if (name == null) {
            throw new IllegalStateException("no entity of the kind '" + kind + "' is left: see test_java.py");
        }
        return name;
    }

    /** Receive a number of messages, in as many calls as it takes. */
    static List<ServiceBusReceivedMessage> received(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < count) {
            int before = found.size();
            receiver.receiveMessages(count - before, PATIENCE).forEach(found::add);
            assertTrue(found.size() > before, "only " + before + " of " + count + " messages came");
        }
        return found;
    }

    /** Receive one message. */
    static ServiceBusReceivedMessage next(ServiceBusReceiverClient receiver) {
        return received(receiver, 1).get(0);
    }

    /** Receive and complete a number of messages, and return their bodies. */
    static List<String> completed(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> messages = received(receiver, count);
        messages.forEach(receiver::complete);
        return bodies(messages);
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(message -> found.add(message.getBody().toString()));
        return found;
    }

    /** Return the bodies of all messages in the queue, from its start. */
    static List<String> left(ServiceBusReceiverClient receiver) {
        return bodies(receiver.peekMessages(100, 1));
    }

    /** Fail if a message comes. */
    static void assertEmpty(ServiceBusReceiverClient receiver) {
        assertEquals(List.of(), bodies(receiver.receiveMessages(1, SHORT)));
    }

    /** Wait until a number of messages is in the queue. The broker's own wait for the pipeline is two seconds. */
    static void arrived(ServiceBusReceiverClient receiver, int count) {
        until(() -> left(receiver).size() == count, count + " messages in " + receiver.getEntityPath());
    }

    static void until(BooleanSupplier isDone, String what) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                fail("waited for: " + what);
            }
            sleep(Duration.ofMillis(50));
        }
    }

    static void sleep(Duration time) {
        try {
            Thread.sleep(time.toMillis());
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static OffsetDateTime in(Duration time) {
        // Times travel in whole milliseconds.
        return OffsetDateTime.now(ZoneOffset.UTC).plus(time).truncatedTo(java.time.temporal.ChronoUnit.MILLIS);
    }

    /** Return the numbers from 0 as texts. */
    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(Integer::toString).toList();
    }

    /** Return a message for each body. */
    static List<ServiceBusMessage> messages(List<String> bodies) {
        return bodies.stream().map(ServiceBusMessage::new).toList();
    }

    static ServiceBusMessage message(String body, String id) {
        return new ServiceBusMessage(body).setMessageId(id);
    }

    /** Fail unless the client reports this reason, and return its text. */
    static String refused(ServiceBusFailureReason reason, Executable attempt) {
        ServiceBusException error = assertThrows(ServiceBusException.class, attempt);
        assertEquals(reason, error.getReason(), error::toString);
        return error.getMessage();
    }

    /** Fail unless the client reports this condition. It has no reasons for refused links of sessions. */
    static void refused(AmqpErrorCondition condition, Executable attempt) {
        Throwable error = assertThrows(Exception.class, attempt);
        while (!(error instanceof AmqpException) && error.getCause() != null) {
            error = error.getCause();
        }
        assertEquals(condition, assertInstanceOf(AmqpException.class, error).getErrorCondition(), error::toString);
    }
}
