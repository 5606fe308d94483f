package clients

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func priced(body string, price int) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), ApplicationProperties: map[string]any{"price": price}}
}

func TestEachSubscriptionGetsTheMessagesItsRulesSelect(t *testing.T) {
	s := begin(t)
	topic := s.take("topic")
	paint := message("paint")
	paint.Subject = to.Ptr("paint")
	paint.ApplicationProperties = map[string]any{"colour": "red"}
	s.sendBatch(s.sender(topic), priced("cheap", 50), priced("dear", 150), paint)
	equal(s, []string{"cheap", "dear", "paint"}, s.complete(s.subscription(topic, "all"), 3))
	dear := s.receiveOne(s.subscription(topic, "dear"))
	equal(s, "dear", string(dear.Body))
	equal[any](s, true, dear.ApplicationProperties["urgent"])
	equal(s, int64(1), *dear.SequenceNumber)
	equal(s, int64(2), *dear.EnqueuedSequenceNumber)
	equal(s, []string{"paint"}, s.complete(s.subscription(topic, "red"), 1))
}

func TestEachSubscriptionHasItsOwnDeadLetters(t *testing.T) {
	s := begin(t)
	topic := s.take("topic")
	s.send(s.sender(topic), priced("dear", 150))
	receiver := s.subscription(topic, "dear")
	reason := azservicebus.DeadLetterOptions{Reason: to.Ptr("too dear")}
	s.check(receiver.DeadLetterMessage(s.soon(), s.receiveOne(receiver), &reason))
	options := azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	letters, err := s.client.NewReceiverForSubscription(topic, "dear", &options)
	s.check(err)
	equal(s, "too dear", *s.receiveOne(letters).DeadLetterReason)
	equal(s, []string{"dear"}, s.complete(s.subscription(topic, "all"), 1))
}
