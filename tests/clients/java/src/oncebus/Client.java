package oncebus;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;

/** The clients of one scenario. They share a connection, and are closed together. */
final class Client implements AutoCloseable {
    final ServiceBusClientBuilder builder;

    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    Client() {
        this(Stage.given("SERVICEBUS_CONNECTION_STRING"), new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(30)));
    }

    Client(String connection, AmqpRetryOptions retries) {
        this(new ServiceBusClientBuilder().connectionString(connection).retryOptions(retries));
    }

    Client(ServiceBusClientBuilder builder) {
        this.builder = builder;
    }

    /** Return clients that do not retry: most refusals would only be repeated. */
    static Client once() {
        return once(Stage.given("SERVICEBUS_CONNECTION_STRING"));
    }

    static Client once(String connection) {
        return new Client(connection, new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(30)));
    }

    /** Close something together with the rest. */
    <T extends AutoCloseable> T opened(T client) {
        open.push(client);
        return client;
    }

    /** Open a sender to a queue. */
    ServiceBusSenderClient sender(String queue) {
        return opened(builder.sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient topicSender(String topic) {
        return opened(builder.sender().topicName(topic).buildClient());
    }

    /** Open a receiver that renews no locks by itself. */
    ServiceBusReceiverClient receiver(String queue) {
        return opened(builder.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusReceiverClient deleting(String queue) {
        var mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE;
        return opened(builder.receiver().queueName(queue).receiveMode(mode).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return opened(builder.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    ServiceBusReceiverClient subscription(String topic, String name) {
        return opened(builder.receiver().topicName(topic).subscriptionName(name).buildClient());
    }

    /** Open a client that accepts sessions and renews none by itself. */
    ServiceBusSessionReceiverClient sessions(String queue) {
        return opened(builder.sessionReceiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusReceiverClient session(String queue, String id) {
        return opened(sessions(queue).acceptSession(id));
    }

    /** Start a processor, which runs until the clients are closed. */
    void start(ServiceBusProcessorClient processor) {
        opened(processor).start();
    }

    @Override
    public void close() throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
    }
}
