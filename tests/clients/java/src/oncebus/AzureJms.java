package oncebus;

import static oncebus.Stage.given;
import static oncebus.Stage.numbers;
import static oncebus.Stage.port;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.Connection;
import jakarta.jms.Session;
import org.junit.jupiter.api.Test;

/** Azure's own JMS provider. It always uses TLS, and takes a port if the host is given on its own. */
class AzureJms {
    @Test
    void itSendsAndReceives() throws Exception {
        String queue = take("plain");
        var factory = new ServiceBusJmsConnectionFactory("RootManageSharedAccessKey", given("KEY"),
            "localhost:" + port("AMQPS_PORT"), new ServiceBusJmsConnectionFactorySettings());
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Jms.send(session, queue, numbers(5));
            assertEquals(numbers(5), Jms.texts(session.createConsumer(session.createQueue(queue)), 5));
        }
    }
}
