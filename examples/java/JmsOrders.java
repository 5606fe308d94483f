// Send and receive with JMS. The user is the name of an authorization rule, the password its key.

import jakarta.jms.JMSContext;
import jakarta.jms.Queue;
import org.apache.qpid.jms.JmsConnectionFactory;

public class JmsOrders {
    public static void main(String[] args) {
        var factory = new JmsConnectionFactory(
            "RootManageSharedAccessKey", System.getenv("SERVICEBUS_KEY"), "amqp://localhost:5672");

        try (JMSContext context = factory.createContext()) {
            Queue orders = context.createQueue("orders");
            context.createProducer().setProperty("price", 3).send(orders, "one coffee");
            System.out.println("received: " + context.createConsumer(orders).receiveBody(String.class, 60_000));
        }
    }
}
