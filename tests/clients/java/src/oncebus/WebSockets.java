package oncebus;

import static oncebus.Stage.completed;
import static oncebus.Stage.given;
import static oncebus.Stage.messages;
import static oncebus.Stage.numbers;
import static oncebus.Stage.port;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import jakarta.jms.Connection;
import jakarta.jms.Session;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;

/** WebSockets. The official client always uses TLS there, and takes the port from the endpoint address. */
class WebSockets {
    private static Client connected() {
        return new Client(new ServiceBusClientBuilder()
            .connectionString(given("SERVICEBUS_CONNECTION_STRING").replace(";UseDevelopmentEmulator=true", ""))
            .customEndpointAddress("https://localhost:" + port("HTTPS_PORT"))
            .transportType(AmqpTransportType.AMQP_WEB_SOCKETS)
            .retryOptions(new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(30))));
    }

    @Test
    void smallAndLargeMessagesAreSentReceivedAndSettled() throws Exception {
        try (Client client = connected()) {
            String queue = take("plain");
            var sender = client.sender(queue);
            List<String> bodies = List.of("small", "x".repeat(200_000), "y".repeat(5000));
            for (String body : bodies) {
                sender.sendMessage(new ServiceBusMessage(body));
            }
            var receiver = client.receiver(queue);
            assertEquals(bodies, completed(receiver, 3));
            sender.sendMessages(messages(numbers(2)));
            var found = Stage.received(receiver, 2);
            receiver.defer(found.get(0));
            receiver.deadLetter(found.get(1));
            receiver.complete(receiver.receiveDeferredMessage(found.get(0).getSequenceNumber()));
            assertEquals(List.of("1"), completed(client.deadLetters(queue), 1));
            assertEquals(List.of(), Stage.left(receiver));
        }
    }

    @Test
    void aSessionIsReceived() throws Exception {
        try (Client client = connected()) {
            String queue = take("sessions");
            client.sender(queue).sendMessage(new ServiceBusMessage("1").setSessionId("a"));
            var holder = client.session(queue, "a");
            assertEquals(List.of("1"), completed(holder, 1));
            holder.setSessionState(new byte[] {7});
            assertEquals(7, holder.getSessionState()[0]);
        }
    }

    @Test
    void aProcessorGetsEveryMessage() throws Exception {
        try (Client client = connected()) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(20)));
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
            client.start(client.builder.processor()
                .queueName(queue)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient());
            Stage.until(() -> found.size() >= 20, "20 messages");
            assertEquals(numbers(20), List.copyOf(found));
            assertEquals(List.of(), List.copyOf(errors));
        }
    }

    @Test
    void jmsSendsAndReceives() throws Exception {
        String queue = take("plain");
        var factory = new JmsConnectionFactory("RootManageSharedAccessKey", given("KEY"),
            "amqpwss://localhost:" + port("HTTPS_PORT") + "/$servicebus/websocket");
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Jms.send(session, queue, List.of("small", "x".repeat(200_000)));
            var consumer = session.createConsumer(session.createQueue(queue));
            assertEquals(List.of("small", "x".repeat(200_000)), Jms.texts(consumer, 2));
        }
    }
}
