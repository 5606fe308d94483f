package clients

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (s *scenario) admin() *admin.Client {
	s.Helper()
	client, err := admin.NewClientFromConnectionString(given(s.T, "ADMINISTRATION"), nil)
	s.check(err)
	return client
}

// status checks that an error has a status of HTTP, and returns its text.
func (s *scenario) status(code int, err error) string {
	s.Helper()
	var found *azcore.ResponseError
	if !errors.As(err, &found) || found.StatusCode != code {
		s.Fatalf("wanted the status %d, got %v", code, err)
	}
	return err.Error()
}

func TestAQueueFromCreationToDeletion(t *testing.T) {
	s := begin(t)
	client, ctx, name := s.admin(), context.Background(), "go/queue"
	made, err := client.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		RequiresDuplicateDetection:          to.Ptr(true),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT1H"),
		LockDuration:                        to.Ptr("PT13S"),
		MaxDeliveryCount:                    to.Ptr(int32(3)),
		DeadLetteringOnMessageExpiration:    to.Ptr(true),
		UserMetadata:                        to.Ptr("größer & <schöner>"),
		AuthorizationRules: []admin.AuthorizationRule{{
			KeyName:      to.Ptr("reader"),
			AccessRights: []admin.AccessRight{admin.AccessRightListen, admin.AccessRightSend},
		}},
	}})
	s.check(err)
	equal(s, name, made.QueueName)
	got, err := client.GetQueue(ctx, name, nil)
	s.check(err)
	for _, queue := range []admin.QueueProperties{made.QueueProperties, got.QueueProperties} {
		equal(s, true, *queue.RequiresDuplicateDetection)
		equal(s, "PT1H", *queue.DuplicateDetectionHistoryTimeWindow)
		equal(s, "PT13S", *queue.LockDuration)
		equal(s, int32(3), *queue.MaxDeliveryCount)
		equal(s, true, *queue.DeadLetteringOnMessageExpiration)
		equal(s, "größer & <schöner>", *queue.UserMetadata)
		equal(s, false, *queue.RequiresSession)
		equal(s, admin.EntityStatusActive, *queue.Status)
		equal(s, "reader", *queue.AuthorizationRules[0].KeyName)
		rights := []admin.AccessRight{admin.AccessRightListen, admin.AccessRightSend}
		equal(s, rights, queue.AuthorizationRules[0].AccessRights)
	}
	changes := got.QueueProperties
	changes.DuplicateDetectionHistoryTimeWindow = to.Ptr("P2D")
	changes.MaxDeliveryCount = to.Ptr(int32(7))
	changes.Status = to.Ptr(admin.EntityStatusSendDisabled)
	changed, err := client.UpdateQueue(ctx, name, changes, nil)
	s.check(err)
	equal(s, "P2D", *changed.DuplicateDetectionHistoryTimeWindow)
	got, err = client.GetQueue(ctx, name, nil)
	s.check(err)
	equal(s, int32(7), *got.MaxDeliveryCount)
	equal(s, admin.EntityStatusSendDisabled, *got.Status)
	_, err = client.CreateQueue(ctx, name, nil)
	s.status(http.StatusConflict, err)
	_, err = client.DeleteQueue(ctx, name, nil)
	s.check(err)
	got, err = client.GetQueue(ctx, name, nil)
	s.check(err)
	equal(s, nil, got)
	_, err = client.DeleteQueue(ctx, name, nil)
	s.status(http.StatusNotFound, err)
}

func TestQueuesAreListedPageByPage(t *testing.T) {
	s := begin(t)
	var pages int
	var found []string
	pager := s.admin().NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 50})
	for ; pager.More(); pages++ {
		page, err := pager.NextPage(s.soon())
		s.check(err)
		for _, each := range page.Queues {
			found = append(found, each.QueueName)
		}
	}
	if pages < 2 || !slices.Contains(found, s.take("plain")) {
		s.Fatalf("%d pages with %v", pages, found)
	}
	slices.Sort(found)
	equal(s, len(found), len(slices.Compact(found)))
}

func TestAQueueCountsItsMessages(t *testing.T) {
	s := begin(t)
	client, queue := s.admin(), s.take("detecting")
	sender, receiver := s.sender(queue), s.receiver(queue)
	s.send(sender, identified("a", "a"), identified("b", "b"), identified("c", "c"), identified("a", "a"))
	later := []*azservicebus.Message{identified("later", "later")}
	_, err := sender.ScheduleMessages(s.soon(), later, time.Now().Add(time.Hour), nil)
	s.check(err)
	s.check(receiver.DeadLetterMessage(s.soon(), s.receiveOne(receiver), nil))
	s.arrived(receiver, 3)
	counts, err := client.GetQueueRuntimeProperties(s.soon(), queue, nil)
	s.check(err)
	equal(s, int32(2), counts.ActiveMessageCount)
	equal(s, int32(1), counts.DeadLetterMessageCount)
	equal(s, int32(1), counts.ScheduledMessageCount)
	equal(s, int64(4), counts.TotalMessageCount)
	if counts.SizeInBytes <= 0 || counts.UpdatedAt.Before(counts.CreatedAt) {
		s.Fatalf("%+v", counts)
	}
}

func TestATopicItsSubscriptionsAndTheirRules(t *testing.T) {
	s := begin(t)
	client, ctx, topic := s.admin(), context.Background(), "go-topic"
	made, err := client.CreateTopic(ctx, topic, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
		RequiresDuplicateDetection: to.Ptr(true),
	}})
	s.check(err)
	equal(s, "PT10M", *made.DuplicateDetectionHistoryTimeWindow)
	made.DuplicateDetectionHistoryTimeWindow = to.Ptr("PT3H")
	changed, err := client.UpdateTopic(ctx, topic, made.TopicProperties, nil)
	s.check(err)
	equal(s, "PT3H", *changed.DuplicateDetectionHistoryTimeWindow)

	cheap := admin.RuleProperties{
		Name: "cheap", Filter: &admin.SQLFilter{Expression: "price < 10"}, Action: &admin.SQLAction{Expression: "SET cheap = 1"},
	}
	_, err = client.CreateSubscription(ctx, topic, "one", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{MaxDeliveryCount: to.Ptr(int32(3)), DefaultRule: &cheap},
	})
	s.check(err)
	_, err = client.CreateSubscription(ctx, topic, "two", nil)
	s.check(err)
	one, err := client.GetSubscription(ctx, topic, "one", nil)
	s.check(err)
	one.LockDuration = to.Ptr("PT13S")
	updated, err := client.UpdateSubscription(ctx, topic, "one", one.SubscriptionProperties, nil)
	s.check(err)
	equal(s, "PT13S", *updated.LockDuration)
	equal(s, int32(3), *updated.MaxDeliveryCount)

	named := admin.CorrelationFilter{
		CorrelationID: to.Ptr("me"), Subject: to.Ptr("paint"), ApplicationProperties: map[string]any{"colour": "red"},
	}
	_, err = client.CreateRule(ctx, topic, "one", &admin.CreateRuleOptions{Name: to.Ptr("named"), Filter: &named})
	s.check(err)
	equal(s, []string{"cheap", "named"}, s.rules(client, topic, "one"))
	equal(s, []string{"$Default"}, s.rules(client, topic, "two"))
	rule, err := client.GetRule(ctx, topic, "one", "named", nil)
	s.check(err)
	equal[admin.RuleFilter](s, &named, rule.Filter)
	cheap.Filter = &admin.SQLFilter{Expression: "price < @most", Parameters: map[string]any{"@most": int64(20)}}
	_, err = client.UpdateRule(ctx, topic, "one", cheap)
	s.check(err)
	rule, err = client.GetRule(ctx, topic, "one", "cheap", nil)
	s.check(err)
	equal(s, cheap, rule.RuleProperties)
	_, err = client.DeleteRule(ctx, topic, "one", "named", nil)
	s.check(err)
	rule, err = client.GetRule(ctx, topic, "one", "named", nil)
	s.check(err)
	equal(s, nil, rule)

	s.send(s.sender(topic), priced("x", 15))
	equal[any](s, int64(1), s.receiveOne(s.subscription(topic, "one")).ApplicationProperties["cheap"])
	s.receiveOne(s.subscription(topic, "two"))
	counts, err := client.GetSubscriptionRuntimeProperties(ctx, topic, "one", nil)
	s.check(err)
	equal(s, int32(1), counts.ActiveMessageCount)
	runtime, err := client.GetTopicRuntimeProperties(ctx, topic, nil)
	s.check(err)
	equal(s, []int32{2, 2, 0}, []int32{runtime.SubscriptionCount, runtime.SQLFilterCount, runtime.CorrelationFilterCount})
	_, err = client.DeleteSubscription(ctx, topic, "two", nil)
	s.check(err)
	_, err = client.DeleteTopic(ctx, topic, nil)
	s.check(err)
	gone, err := client.GetTopic(ctx, topic, nil)
	s.check(err)
	equal(s, nil, gone)
}

func (s *scenario) rules(client *admin.Client, topic, subscription string) []string {
	s.Helper()
	var found []string
	for pager := client.NewListRulesPager(topic, subscription, nil); pager.More(); {
		page, err := pager.NextPage(s.soon())
		s.check(err)
		for _, each := range page.Rules {
			found = append(found, each.Name)
		}
	}
	return found
}

func TestTheNamespaceAndARefusalAreReported(t *testing.T) {
	s := begin(t)
	client := s.admin()
	namespace, err := client.GetNamespaceProperties(s.soon(), nil)
	s.check(err)
	equal(s, "Standard", namespace.SKU)
	_, err = client.CreateQueue(s.soon(), "go-wrong", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		RequiresDuplicateDetection: to.Ptr(true), DuplicateDetectionHistoryTimeWindow: to.Ptr("PT5S"),
	}})
	text := s.status(http.StatusBadRequest, err)
	if !strings.Contains(text, "must be between 00:00:20 and 7.00:00:00") {
		s.Fatal(text)
	}
}
