package oncebus;

import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.UNAUTHORIZED;
import static oncebus.Stage.given;
import static oncebus.Stage.messages;
import static oncebus.Stage.refused;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The client's errors for missing entities, missing rights and invalid operations. */
class Refusals {
    private static final ServiceBusMessage MESSAGE = new ServiceBusMessage("x");

    /** Receive from something that must refuse. */
    private static void receive(ServiceBusReceiverClient receiver) {
        receiver.receiveMessages(1, Duration.ofSeconds(20)).forEach(each -> {});
    }

    @Test
    void theErrorNamesAMissingEntity() throws Exception {
        try (Client client = Client.once()) {
            String text = refused(MESSAGING_ENTITY_NOT_FOUND, () -> client.sender("nowhere").sendMessage(MESSAGE));
            assertTrue(text.contains("nowhere' could not be found"), text);
            text = refused(MESSAGING_ENTITY_NOT_FOUND, () -> client.receiver("nowhere").peekMessage());
            assertTrue(text.contains("nowhere' could not be found"), text);
            refused(AmqpErrorCondition.NOT_FOUND, () -> client.session("nowhere", "a"));
        }
    }

    @Test
    void aReceiverOfAMissingSubscriptionEnds() throws Exception {
        try (Client client = Client.once()) {
            var receiver = client.subscription(take("topic"), "none");
            var error = assertThrows(RuntimeException.class, () -> receive(receiver));
            assertTrue(error.toString().contains("terminated"), error::toString);
        }
    }

    @Test
    void aWrongKeyAndAnExpiredTokenAreRefused() throws Exception {
        String right = given("SERVICEBUS_CONNECTION_STRING");
        String wrong = right.replaceFirst("SharedAccessKey=[^;]+", "SharedAccessKey=AAAA");
        for (String connection : List.of(wrong, given("EXPIRED"))) {
            try (Client client = Client.once(connection)) {
                refused(UNAUTHORIZED, () -> client.sender(take("plain")).sendMessage(MESSAGE));
            }
        }
    }

    @Test
    void theErrorNamesAMissingRight() throws Exception {
        String queue = take("plain");
        try (Client client = Client.once(given("ONLY_LISTENS"))) {
            String text = refused(UNAUTHORIZED, () -> client.sender(queue).sendMessage(MESSAGE));
            assertTrue(text.contains("'Send' claim"), text);
        }
        try (Client client = Client.once(given("ONLY_SENDS"))) {
            client.sender(queue).sendMessage(MESSAGE);
            String text = refused(UNAUTHORIZED, () -> client.receiver(queue).peekMessage());
            assertTrue(text.contains("'Listen' claim"), text);
        }
    }

    @Test
    void aDisabledQueueTakesNoMessage() throws Exception {
        try (Client client = Client.once()) {
            refused(MESSAGING_ENTITY_DISABLED, () -> client.sender(take("disabled")).sendMessage(MESSAGE));
        }
    }

    @Test
    void aTooLargeMessageIsRefusedAndALongListIsSentInBatches() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            refused(MESSAGE_SIZE_EXCEEDED, () -> sender.sendMessage(new ServiceBusMessage("z".repeat(256 * 1024))));
            List<String> large = List.of("x".repeat(150_000), "y".repeat(150_000));
            sender.sendMessages(messages(large));
            assertEquals(large, Stage.completed(client.receiver(queue), 2));
        }
    }

    @Test
    void sessionsNeedAnEntityThatRequiresThem() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("sessions");
            assertThrows(RuntimeException.class, () -> client.session(take("plain"), "a"));
            assertThrows(RuntimeException.class, () -> client.sender(queue).sendMessage(MESSAGE));
            assertThrows(RuntimeException.class, () -> receive(client.receiver(queue)));
        }
    }
}
