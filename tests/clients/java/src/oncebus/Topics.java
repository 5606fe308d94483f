package oncebus;

import static oncebus.Stage.assertEmpty;
import static oncebus.Stage.completed;
import static oncebus.Stage.next;
import static oncebus.Stage.refused;
import static oncebus.Stage.take;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Topics, subscriptions and their rules. */
class Topics {
    private static ServiceBusMessage priced(int price) {
        var message = new ServiceBusMessage(Integer.toString(price));
        message.getApplicationProperties().put("price", price);
        return message;
    }

    @Test
    void eachSubscriptionGetsTheMessagesItsRulesSelect() throws Exception {
        try (Client client = new Client()) {
            String topic = take("topic");
            var paint = new ServiceBusMessage("red").setSubject("paint");
            paint.getApplicationProperties().put("colour", "red");
            client.topicSender(topic).sendMessages(List.of(priced(50), priced(150), paint));
            assertEquals(List.of("50", "150", "red"), completed(client.subscription(topic, "all"), 3));
            var dear = next(client.subscription(topic, "dear"));
            assertEquals("150", dear.getBody().toString());
            assertEquals(true, dear.getApplicationProperties().get("urgent"));
            assertEquals(List.of("red"), completed(client.subscription(topic, "red"), 1));
        }
    }

    @Test
    void eachSubscriptionHasItsOwnDeadLetters() throws Exception {
        try (Client client = new Client()) {
            String topic = take("topic");
            client.topicSender(topic).sendMessage(priced(150));
            var all = client.subscription(topic, "all");
            all.deadLetter(next(all));
            var dead = client.opened(client.builder.receiver().topicName(topic).subscriptionName("all")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
            assertEquals(List.of("150"), completed(dead, 1));
            assertEquals(List.of("150"), completed(client.subscription(topic, "dear"), 1));
        }
    }

    @Test
    void rulesAreAddedListedAndRemovedOverAmqp() throws Exception {
        try (Client client = Client.once()) {
            String topic = take("topic");
            var rules = client.opened(
                client.builder.ruleManager().topicName(topic).subscriptionName("all").buildClient());
            var cheap = new CreateRuleOptions(new SqlRuleFilter("price < 10"));
            rules.createRule("cheap", cheap.setAction(new SqlRuleAction("SET cheap = 1")));
            var filter = new CorrelationRuleFilter().setCorrelationId("me").setLabel("paint");
            filter.getProperties().put("colour", "red");
            rules.createRule("named", new CreateRuleOptions(filter));
            rules.createRule("never", new CreateRuleOptions(new FalseRuleFilter()));
            rules.createRule("always", new CreateRuleOptions(new TrueRuleFilter()));
            rules.deleteRule("$Default");
            rules.deleteRule("always");

            Map<String, RuleProperties> found = new TreeMap<>();
            rules.listRules().forEach(each -> found.put(each.getName(), each));
            assertEquals(List.of("cheap", "named", "never"), List.copyOf(found.keySet()));
            assertEquals("price < 10", ((SqlRuleFilter) found.get("cheap").getFilter()).getSqlExpression());
            assertEquals("SET cheap = 1", ((SqlRuleAction) found.get("cheap").getAction()).getSqlExpression());
            assertEquals(filter, found.get("named").getFilter());
            // The client sends it as a SQL filter.
            assertEquals("1=0", ((SqlRuleFilter) found.get("never").getFilter()).getSqlExpression());
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> rules.deleteRule("none"));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS, () -> rules.createRule("cheap", cheap));

            client.topicSender(topic).sendMessages(List.of(priced(50), priced(5)));
            var receiver = client.subscription(topic, "all");
            var message = next(receiver);
            assertEquals("5", message.getBody().toString());
            assertEquals(1, ((Number) message.getApplicationProperties().get("cheap")).intValue());
            receiver.complete(message);
            assertEmpty(receiver);
        }
    }
}
