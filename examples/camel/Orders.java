package shop;

import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;

/** Sends three orders to a queue, and prints the orders that arrive there. */
public class Orders extends RouteBuilder {
    private static final String QUEUE = "azure-servicebus:camel-orders?connectionString=RAW({{env:CONNECTION_STRING}})";

    @Override
    public void configure() {
        from("timer:orders?repeatCount=3&delay=0&period=10&includeMetadata=true")
                .setBody(simple("order ${exchangeProperty.CamelTimerCounter}"))
                .to(QUEUE);
        from(QUEUE).process(exchange -> System.out.println("Received: " + exchange.getMessage().getBody(String.class)));
    }

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        main.configure().addRoutesBuilder(new Orders());
        main.run(args);
    }
}
