package shop;

import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import com.azure.spring.messaging.servicebus.support.ServiceBusMessageHeaders;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.support.MessageBuilder;

/** Sends an order twice, as a client does whose first answer was lost, and one more. Prints those that arrive. */
@SpringBootApplication
@EnableAzureMessaging
public class Orders {
    private static final String QUEUE = "spring-orders";

    public static void main(String[] args) {
        SpringApplication.run(Orders.class, args);
    }

    @Bean
    CommandLineRunner send(ServiceBusTemplate template) {
        return args -> {
            for (String id : new String[] {"1", "1", "2"}) {
                var order = MessageBuilder.withPayload("order " + id)
                        .setHeader(ServiceBusMessageHeaders.MESSAGE_ID, "order-" + id)
                        .build();
                template.sendAsync(QUEUE, order).block();
            }
        };
    }

    @ServiceBusListener(destination = QUEUE)
    void receive(String order) {
        System.out.println("Received: " + order);
    }
}
