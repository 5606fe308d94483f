package oncebus;

import static oncebus.Stage.assertEmpty;
import static oncebus.Stage.completed;
import static oncebus.Stage.in;
import static oncebus.Stage.message;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.List;
import java.util.TreeSet;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** Repeated ids are delivered once. */
class Duplicates {
    /** Send an id once as "first", then seven times as "again": single, in lists and batches, and scheduled. */
    private static void sendInEveryWay(ServiceBusSenderClient sender, UnaryOperator<ServiceBusMessage> with) {
        sender.sendMessage(with.apply(message("first", "12345.2017/Payment")));
        sender.sendMessage(again(with));
        sender.sendMessages(List.of(again(with), again(with)));
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        batch.tryAddMessage(again(with));
        sender.sendMessages(batch);
        sender.scheduleMessages(List.of(again(with), again(with)), in(Duration.ofSeconds(-1)));
        sender.scheduleMessage(again(with), in(Duration.ofHours(1)));
        sender.sendMessage(with.apply(message("last", "last")));
    }

    private static ServiceBusMessage again(UnaryOperator<ServiceBusMessage> with) {
        return with.apply(message("again", "12345.2017/Payment"));
    }

    @Test
    void onAQueue() throws Exception {
        try (Client client = new Client()) {
            String queue = take("detecting");
            sendInEveryWay(client.sender(queue), each -> each);
            var receiver = client.receiver(queue);
            assertEquals(List.of("first", "last"), completed(receiver, 2));
            assertEmpty(receiver);
            assertEquals(List.of(), Stage.left(receiver));
        }
    }

    @Test
    void onATopic() throws Exception {
        try (Client client = new Client()) {
            String topic = take("detecting-topic");
            sendInEveryWay(client.topicSender(topic), each -> {
                each.getApplicationProperties().put("price", 150);
                return each;
            });
            for (String name : List.of("all", "dear")) {
                assertEquals(List.of("first", "last"), completed(client.subscription(topic, name), 2));
            }
        }
    }

    @Test
    void onAQueueWithSessions() throws Exception {
        try (Client client = new Client()) {
            String queue = take("detecting-sessions");
            sendInEveryWay(client.sender(queue), each -> each.setSessionId("s"));
            assertEquals(List.of("first", "last"), completed(client.session(queue, "s"), 2));
        }
    }

    @Test
    void onAPartitionedQueueTheKeyCountsWithTheId() throws Exception {
        try (Client client = new Client()) {
            String queue = take("detecting-partitioned");
            var sender = client.sender(queue);
            sendInEveryWay(sender, each -> each);
            for (String key : List.of("k", "l")) {
                sender.sendMessage(message("first " + key, "b").setPartitionKey(key));
                sender.sendMessage(message("again", "b").setPartitionKey(key));
            }
            var receiver = client.receiver(queue);
            List<String> found = completed(receiver, 4);
            assertEquals(new TreeSet<>(List.of("first", "first k", "first l", "last")), new TreeSet<>(found));
            assertEmpty(receiver);
        }
    }

    @Test
    void messagesWithoutAnIdAreNeverDuplicates() throws Exception {
        try (Client client = new Client()) {
            String queue = take("detecting");
            client.sender(queue).sendMessages(Stage.messages(List.of("x", "x", "x")));
            assertEquals(List.of("x", "x", "x"), completed(client.receiver(queue), 3));
        }
    }
}
