package oncebus;

import static oncebus.Stage.arrived;
import static oncebus.Stage.bodies;
import static oncebus.Stage.in;
import static oncebus.Stage.left;
import static oncebus.Stage.messages;
import static oncebus.Stage.received;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Scheduled messages. */
class Scheduling {
    @Test
    void scheduledMessagesArriveAtTheirTimeUnderANewNumber() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            OffsetDateTime soon = in(Duration.ofSeconds(10));
            long number = sender.scheduleMessage(new ServiceBusMessage("a"), soon);
            sender.sendMessage(new ServiceBusMessage("b").setScheduledEnqueueTime(soon.plusSeconds(1)));
            var found = received(client.receiver(queue), 2);
            assertEquals(List.of("a", "b"), bodies(found));
            assertTrue(found.get(0).getSequenceNumber() > number);
            assertFalse(found.get(0).getEnqueuedTime().isBefore(soon));
            assertEquals(soon, found.get(0).getScheduledEnqueueTime());
        }
    }

    @Test
    void scheduledMessagesArePeekedAndCancelledOnce() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            var receiver = client.receiver(queue);
            OffsetDateTime later = in(Duration.ofHours(1));
            List<Long> sequence = new ArrayList<>();
            sender.scheduleMessages(messages(List.of("a", "b", "c")), later).forEach(sequence::add);
            assertEquals(3, sequence.size());
            arrived(receiver, 3);
            var peeked = receiver.peekMessage(sequence.get(1));
            assertEquals("b", peeked.getBody().toString());
            assertEquals(ServiceBusMessageState.SCHEDULED, peeked.getState());
            assertEquals(later, peeked.getScheduledEnqueueTime());
            sender.cancelScheduledMessage(sequence.get(1));
            assertEquals(List.of("a", "c"), left(receiver));
            sender.cancelScheduledMessages(List.of(sequence.get(0), sequence.get(2)));
            assertEquals(List.of(), left(receiver));
        }
    }
}
