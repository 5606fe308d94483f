package oncebus;

import static oncebus.Stage.completed;
import static oncebus.Stage.message;
import static oncebus.Stage.messages;
import static oncebus.Stage.next;
import static oncebus.Stage.numbers;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Sends in every form this client has. */
class Sending {
    @Test
    void singleMessagesListsAndBatchesArriveInTheOrderTheyWereSent() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            sender.sendMessage(new ServiceBusMessage("0"));
            sender.sendMessages(messages(List.of("1", "2")));
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (String body : List.of("3", "4")) {
                assertTrue(batch.tryAddMessage(new ServiceBusMessage(body)));
            }
            sender.sendMessages(batch);
            sender.sendMessage(new ServiceBusMessage("5"));
            assertEquals(numbers(6), completed(client.receiver(queue), 6));
        }
    }

    @Test
    void everythingAboutAMessageComesBackAsItWasSent() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sent = new ServiceBusMessage(BinaryData.fromBytes(new byte[] {0, 1, (byte) 255}))
                .setMessageId("12345.2017/Payment")
                .setContentType("application/octet-stream")
                .setCorrelationId("correlation")
                .setSubject("subject")
                .setTo("to")
                .setReplyTo("reply")
                .setReplyToSessionId("reply session")
                .setPartitionKey("ödeme")
                .setTimeToLive(Duration.ofHours(1));
            Map<String, Object> properties = new LinkedHashMap<>();
            properties.put("text", "ödeme");
            properties.put("true", true);
            properties.put("int", -7);
            properties.put("long", 1L << 40);
            properties.put("short", (short) 300);
            properties.put("byte", (byte) -3);
            properties.put("double", 0.5);
            properties.put("float", 0.25f);
            properties.put("char", 'ö');
            properties.put("uuid", UUID.fromString("00010203-0405-0607-0809-0a0b0c0d0e0f"));
            properties.put("time", OffsetDateTime.of(2020, 1, 2, 3, 4, 5, 6_000_000, ZoneOffset.UTC));
            properties.put("duration", Duration.ofMillis(1500));
            sent.getApplicationProperties().putAll(properties);
            AmqpAnnotatedMessage raw = sent.getRawAmqpMessage();
            raw.getHeader().setPriority((short) 7).setDurable(true);
            raw.getDeliveryAnnotations().put("x-delivery", 1);
            client.sender(queue).sendMessage(sent);

            var message = next(client.receiver(queue));
            assertArrayEquals(new byte[] {0, 1, (byte) 255}, message.getBody().toBytes());
            assertEquals("12345.2017/Payment", message.getMessageId());
            assertEquals("application/octet-stream", message.getContentType());
            assertEquals("correlation", message.getCorrelationId());
            assertEquals("subject", message.getSubject());
            assertEquals("to", message.getTo());
            assertEquals("reply", message.getReplyTo());
            assertEquals("reply session", message.getReplyToSessionId());
            assertEquals("ödeme", message.getPartitionKey());
            assertEquals(Duration.ofHours(1), message.getTimeToLive());
            assertEquals(properties, message.getApplicationProperties());
            assertEquals(message.getEnqueuedTime().plusHours(1), message.getExpiresAt());
            assertEquals(1, message.getSequenceNumber());
            assertEquals(0, message.getDeliveryCount());
            AmqpAnnotatedMessage back = message.getRawAmqpMessage();
            assertEquals((short) 7, back.getHeader().getPriority());
            assertEquals(true, back.getHeader().isDurable());
            assertEquals(1, back.getDeliveryAnnotations().get("x-delivery"));
        }
    }

    @Test
    void bodiesThatAreValuesAndSequencesComeBackAsSuch() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue(17L)));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of("a", 2, 0.5))));
            var receiver = client.receiver(queue);
            var found = Stage.received(receiver, 2);
            assertEquals(17L, found.get(0).getRawAmqpMessage().getBody().getValue());
            assertEquals(List.of("a", 2, 0.5), found.get(1).getRawAmqpMessage().getBody().getSequence());
        }
    }

    @Test
    void aBatchTakesWhatTheLinkAllows() throws Exception {
        try (Client client = Client.once()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            assertEquals(256 * 1024, batch.getMaxSizeInBytes());
            String body = "x".repeat(5000);
            while (batch.tryAddMessage(new ServiceBusMessage(body))) {}
            assertTrue(batch.getSizeInBytes() > batch.getMaxSizeInBytes() - 6000);
            assertTrue(batch.getSizeInBytes() <= batch.getMaxSizeInBytes());
            sender.sendMessages(batch);
            sender.sendMessage(new ServiceBusMessage("y".repeat(200_000)));
            sender.sendMessage(new ServiceBusMessage("small"));
            List<String> found = completed(client.receiver(queue), batch.getCount() + 2);
            assertEquals(List.of("y".repeat(200_000), "small"), found.subList(batch.getCount(), found.size()));
        }
    }

    @Test
    void theAsynchronousClientsSendAndReceive() throws Exception {
        try (Client client = new Client()) {
            String queue = take("plain");
            var sender = client.opened(client.builder.sender().queueName(queue).buildAsyncClient());
            sender.sendMessages(messages(numbers(20))).block(Stage.PATIENCE);
            var receiver = client.opened(
                client.builder.receiver().queueName(queue).disableAutoComplete().buildAsyncClient());
            List<String> found = receiver.receiveMessages()
                .concatMap(each -> receiver.complete(each).thenReturn(each.getBody().toString()))
                .take(20)
                .collectList()
                .block(Stage.PATIENCE);
            assertEquals(numbers(20), found);
            assertFalse(receiver.peekMessages(5, 1).hasElements().block(Stage.PATIENCE));
        }
    }

    @Test
    void manySendersAtOnceShareAQueue() throws Exception {
        String queue = take("plain");
        List<CompletableFuture<Void>> running = new ArrayList<>();
        Set<String> sent = new TreeSet<>();
        for (String name : List.of("a", "b", "c", "d")) {
            numbers(25).forEach(number -> sent.add(name + number));
            running.add(CompletableFuture.runAsync(() -> sendAll(queue, name)));
        }
        running.forEach(CompletableFuture::join);
        try (Client client = new Client()) {
            List<String> found = completed(client.receiver(queue), 100);
            assertEquals(sent, new TreeSet<>(found));
        }
    }

    private static void sendAll(String queue, String name) {
        try (Client client = new Client()) {
            var sender = client.sender(queue);
            numbers(25).forEach(number -> sender.sendMessage(message(name + number, name + number)));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
