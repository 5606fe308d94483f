package oncebus;

import static oncebus.Stage.message;
import static oncebus.Stage.port;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.MessagingSku;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The administration client, over TLS. */
class Administration {
    private static final HttpPipelinePolicy TO_THE_BROKER = (context, next) -> {
        UrlBuilder url = UrlBuilder.parse(context.getHttpRequest().getUrl());
        context.getHttpRequest().setUrl(url.setPort(port("HTTPS_PORT")).toString());
        return next.process();
    };

    private static ServiceBusAdministrationClient open() {
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(Stage.given("SERVICEBUS_CONNECTION_STRING"))
            .addPolicy(TO_THE_BROKER)
            .buildClient();
    }

    @Test
    void aQueueFromCreationToDeletion() throws Exception {
        ServiceBusAdministrationClient admin = open();
        String name = "java/queue";
        var options = new CreateQueueOptions()
            .setDuplicateDetectionRequired(true)
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofHours(1))
            .setLockDuration(Duration.ofSeconds(13))
            .setMaxDeliveryCount(3)
            .setDeadLetteringOnMessageExpiration(true)
            .setUserMetadata("größer & <schöner>");
        options.getAuthorizationRules()
            .add(new SharedAccessAuthorizationRule("reader", List.of(AccessRights.LISTEN, AccessRights.SEND)));
        QueueProperties made = admin.createQueue(name, options);
        assertEquals(name, made.getName());
        for (QueueProperties queue : List.of(made, admin.getQueue(name))) {
            assertTrue(queue.isDuplicateDetectionRequired());
            assertEquals(Duration.ofHours(1), queue.getDuplicateDetectionHistoryTimeWindow());
            assertEquals(Duration.ofSeconds(13), queue.getLockDuration());
            assertEquals(3, queue.getMaxDeliveryCount());
            assertTrue(queue.isDeadLetteringOnMessageExpiration());
            assertEquals("größer & <schöner>", queue.getUserMetadata());
            assertFalse(queue.isSessionRequired());
            assertEquals(EntityStatus.ACTIVE, queue.getStatus());
            assertEquals("reader", queue.getAuthorizationRules().get(0).getKeyName());
            assertEquals(List.of(AccessRights.LISTEN, AccessRights.SEND),
                queue.getAuthorizationRules().get(0).getAccessRights());
        }
        QueueProperties changed = admin.updateQueue(made
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofDays(2))
            .setMaxDeliveryCount(7)
            .setStatus(EntityStatus.SEND_DISABLED));
        assertEquals(Duration.ofDays(2), changed.getDuplicateDetectionHistoryTimeWindow());
        assertEquals(7, admin.getQueue(name).getMaxDeliveryCount());
        assertEquals(EntityStatus.SEND_DISABLED, admin.getQueue(name).getStatus());
        assertTrue(admin.listQueues().stream().anyMatch(each -> each.getName().equals(name)));
        assertThrows(ResourceExistsException.class, () -> admin.createQueue(name));
        admin.deleteQueue(name);
        assertFalse(admin.getQueueExists(name));
        assertThrows(ResourceNotFoundException.class, () -> admin.getQueue(name));
        assertThrows(ResourceNotFoundException.class, () -> admin.deleteQueue(name));
    }

    @Test
    void aQueueCountsItsMessages() throws Exception {
        ServiceBusAdministrationClient admin = open();
        String name = "java-counts";
        admin.createQueue(name, new CreateQueueOptions().setDuplicateDetectionRequired(true));
        try (Client client = new Client()) {
            var sender = client.sender(name);
            for (String id : List.of("a", "b", "c", "a")) {
                sender.sendMessage(message(id, id));
            }
            sender.scheduleMessage(message("later", "later"), Stage.in(Duration.ofHours(1)));
            var receiver = client.receiver(name);
            receiver.deadLetter(Stage.next(receiver));
            Stage.arrived(receiver, 3);
            var counts = admin.getQueueRuntimeProperties(name);
            assertEquals(name, counts.getName());
            assertEquals(2, counts.getActiveMessageCount());
            assertEquals(1, counts.getDeadLetterMessageCount());
            assertEquals(1, counts.getScheduledMessageCount());
            assertEquals(4, counts.getTotalMessageCount());
            assertTrue(counts.getSizeInBytes() > 0);
            assertFalse(counts.getUpdatedAt().isBefore(counts.getCreatedAt()));
        }
        admin.deleteQueue(name);
    }

    @Test
    void aTopicItsSubscriptionsAndTheirRules() throws Exception {
        ServiceBusAdministrationClient admin = open();
        String topic = "java-topic";
        var made = admin.createTopic(topic, new CreateTopicOptions()
            .setDuplicateDetectionRequired(true).setUserMetadata("x"));
        assertTrue(made.isDuplicateDetectionRequired());
        // The client's own default. Other clients send none, and get ten minutes.
        assertEquals(Duration.ofMinutes(1), made.getDuplicateDetectionHistoryTimeWindow());
        admin.updateTopic(made.setDuplicateDetectionHistoryTimeWindow(Duration.ofHours(3)));
        assertEquals(Duration.ofHours(3), admin.getTopic(topic).getDuplicateDetectionHistoryTimeWindow());

        var cheap = new CreateRuleOptions(new SqlRuleFilter("price < 10"))
            .setAction(new SqlRuleAction("SET cheap = 1"));
        admin.createSubscription(topic, "one", "cheap", new CreateSubscriptionOptions().setMaxDeliveryCount(3), cheap);
        admin.createSubscription(topic, "two");
        assertEquals(List.of("one", "two"),
            admin.listSubscriptions(topic).stream().map(each -> each.getSubscriptionName()).toList());
        var one = admin.updateSubscription(admin.getSubscription(topic, "one").setLockDuration(Duration.ofSeconds(13)));
        assertEquals(3, one.getMaxDeliveryCount());
        assertEquals(Duration.ofSeconds(13), one.getLockDuration());

        var named = new CorrelationRuleFilter("me").setLabel("paint");
        named.getProperties().put("colour", "red");
        // With options, the client takes the rule before the subscription.
        admin.createRule(topic, "named", "one", new CreateRuleOptions(named));
        assertEquals(List.of("cheap", "named"),
            admin.listRules(topic, "one").stream().map(each -> each.getName()).toList());
        assertEquals(named, admin.getRule(topic, "one", "named").getFilter());
        var rule = admin.getRule(topic, "one", "cheap");
        assertEquals("price < 10", ((SqlRuleFilter) rule.getFilter()).getSqlExpression());
        assertEquals("SET cheap = 1", ((SqlRuleAction) rule.getAction()).getSqlExpression());
        rule = admin.updateRule(topic, "one", rule.setFilter(new SqlRuleFilter("price < 20")));
        assertEquals("price < 20", ((SqlRuleFilter) rule.getFilter()).getSqlExpression());
        assertEquals(TrueRuleFilter.class, admin.getRule(topic, "two", "$Default").getFilter().getClass());
        admin.deleteRule(topic, "one", "named");
        assertThrows(ResourceNotFoundException.class, () -> admin.getRule(topic, "one", "named"));

        try (Client client = new Client()) {
            var message = message("cheap", "a");
            message.getApplicationProperties().put("price", 15);
            client.topicSender(topic).sendMessage(message);
            assertEquals(1, ((Number) Stage.next(client.subscription(topic, "one"))
                .getApplicationProperties().get("cheap")).intValue());
            Stage.next(client.subscription(topic, "two"));
        }
        assertEquals(1, admin.getSubscriptionRuntimeProperties(topic, "one").getActiveMessageCount());
        assertEquals(2, admin.getTopicRuntimeProperties(topic).getSubscriptionCount());
        admin.deleteSubscription(topic, "two");
        assertFalse(admin.getSubscriptionExists(topic, "two"));
        assertTrue(admin.listTopics().stream().anyMatch(each -> each.getName().equals(topic)));
        admin.deleteTopic(topic);
        assertFalse(admin.getTopicExists(topic));
    }

    @Test
    void theNamespaceAndARefusalAreReported() {
        ServiceBusAdministrationClient admin = open();
        assertEquals(MessagingSku.STANDARD, admin.getNamespaceProperties().getMessagingSku());
        var wrong = new CreateQueueOptions().setDuplicateDetectionRequired(true)
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofSeconds(5));
        var error = assertThrows(HttpResponseException.class, () -> admin.createQueue("java-wrong", wrong));
        assertEquals(400, error.getResponse().getStatusCode());
        assertTrue(error.getMessage().contains("must be between 00:00:20 and 7.00:00:00"), error::getMessage);
    }
}
