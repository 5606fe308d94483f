package oncebus;

import static oncebus.Stage.given;
import static oncebus.Stage.numbers;
import static oncebus.Stage.port;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;

/** JMS with Qpid's provider, which authenticates with the name and the key of a rule. */
class Jms {
    private static final long PATIENCE = Stage.PATIENCE.toMillis();
    private static final long SHORT = Stage.SHORT.toMillis();

    static Connection connected() throws JMSException {
        return connected("RootManageSharedAccessKey", given("KEY"));
    }

    private static Connection connected(String user, String password) throws JMSException {
        var factory = new JmsConnectionFactory(user, password, "amqp://localhost:" + port("AMQP_PORT"));
        Connection connection = factory.createConnection();
        connection.start();
        return connection;
    }

    static String text(Message message) throws JMSException {
        assertNotNull(message, "no message came");
        return message.getBody(String.class);
    }

    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            found.add(text(consumer.receive(PATIENCE)));
        }
        return found;
    }

    static void send(Session session, String queue, List<String> bodies) throws JMSException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (String body : bodies) {
                producer.send(session.createTextMessage(body));
            }
        }
    }

    @Test
    void everyKindOfMessageComesBackAsItWasSent() throws Exception {
        try (Connection connection = connected()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var queue = session.createQueue(take("plain"));
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);

            TextMessage text = session.createTextMessage("ödeme");
            text.setJMSCorrelationID("correlation");
            text.setJMSType("type");
            text.setJMSReplyTo(session.createQueue("replies"));
            Map<String, Object> properties = Map.of("text", "ödeme", "true", true, "byte", (byte) -3,
                "short", (short) 300, "int", -7, "long", 1L << 40, "float", 0.25f, "double", 0.5);
            for (var each : properties.entrySet()) {
                text.setObjectProperty(each.getKey(), each.getValue());
            }
            producer.send(text, DeliveryMode.PERSISTENT, 7, 3_600_000);
            Message back = consumer.receive(PATIENCE);
            assertEquals("ödeme", text(back));
            assertEquals(text.getJMSMessageID(), back.getJMSMessageID());
            assertEquals("correlation", back.getJMSCorrelationID());
            assertEquals("type", back.getJMSType());
            assertEquals(session.createQueue("replies"), back.getJMSReplyTo());
            assertEquals(queue, back.getJMSDestination());
            assertEquals(DeliveryMode.PERSISTENT, back.getJMSDeliveryMode());
            assertEquals(7, back.getJMSPriority());
            assertFalse(back.getJMSRedelivered());
            assertEquals(text.getJMSTimestamp(), back.getJMSTimestamp());
            assertTrue(back.getJMSExpiration() > System.currentTimeMillis());
            for (var each : properties.entrySet()) {
                assertEquals(each.getValue(), back.getObjectProperty(each.getKey()));
            }

            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(new byte[] {0, 1, (byte) 255});
            producer.send(bytes);
            assertEquals(3, ((BytesMessage) consumer.receive(PATIENCE)).getBodyLength());
            MapMessage map = session.createMapMessage();
            map.setString("name", "pen");
            map.setInt("price", 2);
            producer.send(map);
            MapMessage mapBack = (MapMessage) consumer.receive(PATIENCE);
            assertEquals(2, mapBack.getInt("price"));
            assertEquals("pen", mapBack.getString("name"));
            StreamMessage stream = session.createStreamMessage();
            stream.writeString("a");
            stream.writeDouble(0.5);
            producer.send(stream);
            StreamMessage streamBack = (StreamMessage) consumer.receive(PATIENCE);
            assertEquals("a", streamBack.readString());
            assertEquals(0.5, streamBack.readDouble());
            ObjectMessage object = session.createObjectMessage(new ArrayList<>(List.of(1, 2)));
            producer.send(object);
            assertEquals(List.of(1, 2), ((ObjectMessage) consumer.receive(PATIENCE)).getObject());
            assertNull(consumer.receive(SHORT));
        }
    }

    @Test
    void aClientAcknowledgesOrRecovers() throws Exception {
        String queue = take("plain");
        try (Connection connection = connected()) {
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            send(session, queue, numbers(4));
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            assertEquals("0", text(consumer.receive(PATIENCE)));
            Message second = consumer.receive(PATIENCE);
            assertEquals("1", text(second));
            second.acknowledge();
            assertEquals("2", text(consumer.receive(PATIENCE)));
            session.recover();
            Message again = consumer.receive(PATIENCE);
            assertEquals("2", text(again));
            assertTrue(again.getJMSRedelivered());
            assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
            Message last = consumer.receive(PATIENCE);
            assertEquals("3", text(last));
            last.acknowledge();
        }
        try (Client client = new Client()) {
            assertEquals(List.of(), Stage.left(client.receiver(queue)));
        }
    }

    @Test
    void aListenerGetsEveryMessageOnce() throws Exception {
        String queue = take("plain");
        try (Connection connection = connected()) {
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Session listening = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            listening.createConsumer(listening.createQueue(queue)).setMessageListener(message -> {
                try {
                    found.add(text(message));
                } catch (JMSException error) {
                    found.add(error.toString());
                }
            });
            send(connection.createSession(Session.AUTO_ACKNOWLEDGE), queue, numbers(50));
            Stage.until(() -> found.size() >= 50, "50 messages");
            assertEquals(numbers(50), List.copyOf(found));
        }
    }

    @Test
    void aPublisherReachesSubscriptionsByTheirAddresses() throws Exception {
        String topic = take("topic");
        try (Connection connection = connected()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createTopic(topic));
            for (int price : new int[] {50, 150}) {
                TextMessage message = session.createTextMessage(Integer.toString(price));
                message.setIntProperty("price", price);
                producer.send(message);
            }
            var all = session.createConsumer(session.createQueue(topic + "/Subscriptions/all"));
            assertEquals(List.of("50", "150"), texts(all, 2));
            var dear = session.createConsumer(session.createTopic(topic + "/Subscriptions/dear"));
            Message message = dear.receive(PATIENCE);
            assertEquals("150", text(message));
            assertTrue(message.getBooleanProperty("urgent"));
        }
    }

    @Test
    void aBrowserSeesMessagesAndLeavesThem() throws Exception {
        String queue = take("plain");
        try (Connection connection = connected()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            send(session, queue, numbers(5));
            Stage.until(() -> browsed(session, queue).equals(numbers(5)), "5 messages in the browser");
            assertEquals(numbers(5), texts(session.createConsumer(session.createQueue(queue)), 5));
            assertEquals(List.of(), browsed(session, queue));
        }
    }

    private static List<String> browsed(Session session, String queue) {
        try (var browser = session.createBrowser(session.createQueue(queue))) {
            List<String> found = new ArrayList<>();
            for (Object message : Collections.list(browser.getEnumeration())) {
                found.add(text((Message) message));
            }
            return found;
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void theSimplifiedInterfaceSendsInTheBackground() throws Exception {
        String queue = take("plain");
        var factory = new JmsConnectionFactory("RootManageSharedAccessKey", given("KEY"),
            "amqp://localhost:" + port("AMQP_PORT"));
        try (JMSContext context = factory.createContext()) {
            Queue<Message> sent = new ConcurrentLinkedQueue<>();
            JMSProducer producer = context.createProducer().setAsync(new jakarta.jms.CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    sent.add(message);
                }

                @Override
                public void onException(Message message, Exception error) {}
            });
            for (String body : numbers(10)) {
                producer.send(context.createQueue(queue), body);
            }
            Stage.until(() -> sent.size() == 10, "10 confirmations");
            var consumer = context.createConsumer(context.createQueue(queue));
            for (String body : numbers(10)) {
                assertEquals(body, consumer.receiveBody(String.class, PATIENCE));
            }
        }
    }

    @Test
    void theOfficialClientAndJmsExchangeMessages() throws Exception {
        String queue = take("plain");
        try (Connection connection = connected(); Client client = new Client()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var message = new com.azure.messaging.servicebus.ServiceBusMessage("from azure").setSubject("subject");
            message.getApplicationProperties().put("n", 7);
            client.sender(queue).sendMessage(message);
            try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
                Message back = consumer.receive(PATIENCE);
                assertEquals("from azure", new String(back.getBody(byte[].class)));
                assertEquals(7, back.getIntProperty("n"));
                assertEquals("subject", back.getJMSType());
            }
            send(session, queue, List.of("from jms"));
            var back = Stage.next(client.receiver(queue));
            assertEquals("from jms", back.getRawAmqpMessage().getBody().getValue());
        }
    }

    @Test
    void aWrongKeyAMissingRightAndAMissingQueueAreRefused() throws Exception {
        assertThrows(JMSSecurityException.class, () -> connected("RootManageSharedAccessKey", "wrong"));
        try (Connection connection = connected()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var nowhere = session.createQueue("nowhere");
            assertThrows(InvalidDestinationException.class, () -> session.createProducer(nowhere));
            assertThrows(InvalidDestinationException.class, () -> session.createConsumer(nowhere));
        }
        try (Connection connection = connected("only-listens", given("LISTENING_KEY"))) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var queue = session.createQueue(take("plain"));
            assertThrows(JMSSecurityException.class, () -> session.createProducer(queue));
        }
    }
}
