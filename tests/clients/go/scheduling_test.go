package clients

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestScheduledMessagesArriveAtTheirTime(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender := s.sender(queue)
	due := time.Now().Add(10 * time.Second)
	scheduled, err := sender.ScheduleMessages(s.soon(), []*azservicebus.Message{message("a"), message("b")}, due, nil)
	s.check(err)
	equal(s, 2, len(scheduled))
	late := message("c")
	late.ScheduledEnqueueTime = to.Ptr(due)
	s.send(sender, late)
	receiver := s.receiver(queue)
	seen := s.arrived(receiver, 3)
	equal(s, azservicebus.MessageStateScheduled, seen[0].State)
	s.noMore(receiver)
	found := s.receive(receiver, 3)
	equal(s, []string{"a", "b", "c"}, bodies(found))
	if found[0].EnqueuedTime.Before(due.Truncate(time.Second)) {
		s.Fatalf("enqueued at %v, due at %v", found[0].EnqueuedTime, due)
	}
}

func TestACancelledMessageNeverComes(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender, receiver := s.sender(queue), s.receiver(queue)
	later := time.Now().Add(time.Hour)
	scheduled, err := sender.ScheduleMessages(s.soon(), []*azservicebus.Message{message("a"), message("b")}, later, nil)
	s.check(err)
	s.check(sender.CancelScheduledMessages(s.soon(), scheduled[:1], nil))
	equal(s, []string{"b"}, bodies(s.arrived(receiver, 1)))
	once := opened(t, given(t, "SERVICEBUS_CONNECTION_STRING"), &once)
	err = once.sender(queue).CancelScheduledMessages(s.soon(), scheduled[:1], nil)
	s.refused(azservicebus.CodeNotFound, err)
}

func TestAMessageScheduledToATopicIsRoutedWhenItFallsDue(t *testing.T) {
	s := begin(t)
	topic := s.take("topic")
	dear := message("dear")
	dear.ApplicationProperties = map[string]any{"price": 200}
	soon := time.Now().Add(time.Second)
	_, err := s.sender(topic).ScheduleMessages(s.soon(), []*azservicebus.Message{dear}, soon, nil)
	s.check(err)
	equal(s, []string{"dear"}, s.complete(s.subscription(topic, "dear"), 1))
	equal(s, []string{"dear"}, s.complete(s.subscription(topic, "all"), 1))
}
