package oncebus;

import static oncebus.Stage.completed;
import static oncebus.Stage.given;
import static oncebus.Stage.messages;
import static oncebus.Stage.numbers;
import static oncebus.Stage.port;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.amqp.AmqpRetryOptions;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** The official client over TLS, with the broker's certificate in Java's trust store. */
class Tls {
    private static String connection() {
        return given("SERVICEBUS_CONNECTION_STRING")
            .replaceFirst("localhost:[0-9]+", "localhost:" + port("AMQPS_PORT"))
            .replace(";UseDevelopmentEmulator=true", "");
    }

    @Test
    void itSendsAndReceives() throws Exception {
        try (Client client = new Client(connection(), new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(30)))) {
            String queue = take("plain");
            client.sender(queue).sendMessages(messages(numbers(5)));
            assertEquals(numbers(5), completed(client.receiver(queue), 5));
        }
    }
}
