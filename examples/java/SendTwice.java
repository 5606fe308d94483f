// Send a message twice under the same id, and receive it once.

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import java.time.Duration;
import java.util.UUID;

public class SendTwice {
    public static void main(String[] args) {
        String order = "order-" + UUID.randomUUID();
        var builder = new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));

        try (var sender = builder.sender().queueName("orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("first").setMessageId(order));
            sender.sendMessage(new ServiceBusMessage("second").setMessageId(order));
        }

        try (var receiver = builder.receiver().queueName("orders").buildClient()) {
            for (ServiceBusReceivedMessage message : receiver.receiveMessages(10, Duration.ofSeconds(5))) {
                System.out.println("received: " + message.getBody());
                receiver.complete(message);
            }
        }
    }
}
