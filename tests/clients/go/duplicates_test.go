package clients

import (
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// sendInEveryWay sends an id once as "first", then seven times as "again": single, in batches, and scheduled.
func (s *scenario) sendInEveryWay(entity string, with func(*azservicebus.Message)) {
	s.Helper()
	sender := s.sender(entity)
	made := func(id, body string) *azservicebus.Message {
		message := identified(id, body)
		with(message)
		return message
	}
	again := func() *azservicebus.Message { return made("12345.2017/Payment", "again") }
	s.send(sender, made("12345.2017/Payment", "first"), again())
	s.sendBatch(sender, again(), again())
	s.sendBatch(sender, again())
	for _, due := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(time.Hour)} {
		_, err := sender.ScheduleMessages(s.soon(), []*azservicebus.Message{again()}, due, nil)
		s.check(err)
	}
	late := again()
	late.ScheduledEnqueueTime = to.Ptr(time.Now().Add(time.Hour))
	s.send(sender, late, made("last", "last"))
}

func TestAnIdIsDeliveredOnceFromAQueue(t *testing.T) {
	s := begin(t)
	queue := s.take("detecting")
	s.sendInEveryWay(queue, func(*azservicebus.Message) {})
	receiver := s.receiver(queue)
	equal(s, []string{"first", "last"}, s.complete(receiver, 2))
	s.noMore(receiver)
	equal(s, 0, len(s.peek(receiver)))
}

func TestAnIdIsDeliveredOnceToEachSubscription(t *testing.T) {
	s := begin(t)
	topic := s.take("detecting-topic")
	s.sendInEveryWay(topic, func(each *azservicebus.Message) {
		each.ApplicationProperties = map[string]any{"price": 150}
	})
	for _, name := range []string{"all", "dear"} {
		equal(s, []string{"first", "last"}, s.complete(s.subscription(topic, name), 2))
	}
}

func TestAnIdIsDeliveredOnceFromAQueueWithSessions(t *testing.T) {
	s := begin(t)
	queue := s.take("detecting-sessions")
	s.sendInEveryWay(queue, func(each *azservicebus.Message) { each.SessionID = to.Ptr("s") })
	equal(s, []string{"first", "last"}, s.complete(s.session(queue, "s"), 2))
}

func TestOnAPartitionedQueueTheKeyCountsWithTheId(t *testing.T) {
	s := begin(t)
	queue := s.take("detecting-partitioned")
	sender, receiver := s.sender(queue), s.receiver(queue)
	for _, key := range []string{"k", "l"} {
		for _, body := range []string{"first " + key, "again"} {
			keyed := identified("b", body)
			keyed.PartitionKey = to.Ptr(key)
			s.send(sender, keyed)
		}
	}
	found := s.complete(receiver, 2)
	slices.Sort(found)
	equal(s, []string{"first k", "first l"}, found)
	s.noMore(receiver)
}

func TestMessagesWithoutAnIdAreNeverDuplicates(t *testing.T) {
	s := begin(t)
	queue := s.take("detecting")
	s.send(s.sender(queue), message("x"), message("x"))
	s.sendBatch(s.sender(queue), message("x"), message("x"))
	equal(s, []string{"x", "x", "x", "x"}, s.complete(s.receiver(queue), 4))
}
