// Package clients holds scenarios for the official Azure Service Bus client for Go.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// patience is how long a message may take to arrive on a busy machine.
const patience = 60 * time.Second

// short is how long to wait for a message that should not come.
const short = time.Second

var (
	left      map[string][]string
	leftGuard sync.Mutex
)

func TestMain(m *testing.M) {
	if err := json.Unmarshal([]byte(os.Getenv("ENTITIES")), &left); err != nil {
		panic("the variable ENTITIES: " + err.Error())
	}
	os.Exit(m.Run())
}

// scenario is a running test with a client of its own.
type scenario struct {
	*testing.T
	client *azservicebus.Client
}

// begin starts a scenario that runs beside the others, with the root key.
func begin(t *testing.T) *scenario {
	return beginWith(t, given(t, "SERVICEBUS_CONNECTION_STRING"), nil)
}

// beginOnce starts a scenario whose client does not retry.
func beginOnce(t *testing.T) *scenario {
	return beginWith(t, given(t, "SERVICEBUS_CONNECTION_STRING"), &once)
}

var once = azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}

func beginWith(t *testing.T, connection string, options *azservicebus.ClientOptions) *scenario {
	t.Helper()
	t.Parallel()
	return opened(t, connection, options)
}

// opened returns a scenario's further client.
func opened(t *testing.T, connection string, options *azservicebus.ClientOptions) *scenario {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connection, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return &scenario{t, client}
}

// given returns the value of an environment variable that must be set.
func given(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Fatalf("the variable %s is not set", variable)
	}
	return value
}

// take returns the name of an entity that no other scenario uses.
func (s *scenario) take(kind string) string {
	s.Helper()
	leftGuard.Lock()
	defer leftGuard.Unlock()
	if len(left[kind]) == 0 {
		s.Fatalf("no entity of the kind '%s' is left: see test_go.py", kind)
	}
	name := left[kind][0]
	left[kind] = left[kind][1:]
	return name
}

// within returns a context that ends after a time.
func (s *scenario) within(time time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time)
	s.Cleanup(cancel)
	return ctx
}

// soon returns a context for an operation that must succeed.
func (s *scenario) soon() context.Context { return s.within(patience) }

// check fails the scenario if there is an error.
func (s *scenario) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// equal fails the scenario if two values differ.
func equal[T any](s *scenario, want, got T) {
	s.Helper()
	if !reflect.DeepEqual(want, got) {
		s.Fatalf("wanted %+v, got %+v", want, got)
	}
}

// refused checks the code of an error, and returns its text.
func (s *scenario) refused(code azservicebus.Code, err error) string {
	s.Helper()
	var found *azservicebus.Error
	if !errors.As(err, &found) || found.Code != code {
		s.Fatalf("wanted an error with the code %s, got %v", code, err)
	}
	return err.Error()
}

// Clients

func (s *scenario) sender(entity string) *azservicebus.Sender {
	s.Helper()
	sender, err := s.client.NewSender(entity, nil)
	s.check(err)
	return sender
}

func (s *scenario) receiver(queue string) *azservicebus.Receiver {
	s.Helper()
	return s.receiverWith(queue, nil)
}

func (s *scenario) receiverWith(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	receiver, err := s.client.NewReceiverForQueue(queue, options)
	s.check(err)
	return receiver
}

func (s *scenario) deadLetters(queue string) *azservicebus.Receiver {
	s.Helper()
	return s.receiverWith(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (s *scenario) subscription(topic, name string) *azservicebus.Receiver {
	s.Helper()
	receiver, err := s.client.NewReceiverForSubscription(topic, name, nil)
	s.check(err)
	return receiver
}

func (s *scenario) session(queue, id string) *azservicebus.SessionReceiver {
	s.Helper()
	receiver, err := s.client.AcceptSessionForQueue(s.soon(), queue, id, nil)
	s.check(err)
	return receiver
}

// Messages

func message(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func identified(id, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), MessageID: to.Ptr(id)}
}

func inSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(session)}
}

// numbers returns the texts of the numbers below count.
func numbers(count int) []string {
	texts := make([]string, count)
	for number := range count {
		texts[number] = strconv.Itoa(number)
	}
	return texts
}

func (s *scenario) send(sender *azservicebus.Sender, messages ...*azservicebus.Message) {
	s.Helper()
	for _, each := range messages {
		s.check(sender.SendMessage(s.soon(), each, nil))
	}
}

// sendBatch sends messages as one batch.
func (s *scenario) sendBatch(sender *azservicebus.Sender, messages ...*azservicebus.Message) {
	s.Helper()
	batch, err := sender.NewMessageBatch(s.soon(), nil)
	s.check(err)
	for _, each := range messages {
		s.check(batch.AddMessage(each, nil))
	}
	s.check(sender.SendMessageBatch(s.soon(), batch, nil))
}

// sendNumbers sends the numbers below count as one batch.
func (s *scenario) sendNumbers(entity string, count int) {
	s.Helper()
	var messages []*azservicebus.Message
	for _, text := range numbers(count) {
		messages = append(messages, message(text))
	}
	s.sendBatch(s.sender(entity), messages...)
}

// source is a receiver, with or without a session.
type source interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives a number of messages, in as many calls as it takes.
func (s *scenario) receive(from source, count int) []*azservicebus.ReceivedMessage {
	s.Helper()
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		some, err := from.ReceiveMessages(s.soon(), count-len(found), nil)
		if err != nil {
			s.Fatalf("%d of %d messages came: %v", len(found), count, err)
		}
		found = append(found, some...)
	}
	return found
}

func (s *scenario) receiveOne(from source) *azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(from, 1)[0]
}

// complete receives and completes a number of messages, and returns their bodies.
func (s *scenario) complete(from source, count int) []string {
	s.Helper()
	messages := s.receive(from, count)
	for _, each := range messages {
		s.check(from.CompleteMessage(s.soon(), each, nil))
	}
	return bodies(messages)
}

// noMore checks that no message comes.
func (s *scenario) noMore(from source) {
	s.Helper()
	found, err := from.ReceiveMessages(s.within(short), 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) || len(found) != 0 {
		s.Fatalf("wanted no message, got %v and %v", bodies(found), err)
	}
}

// peek returns up to 100 messages, from the lowest sequence number on.
func (s *scenario) peek(from source) []*azservicebus.ReceivedMessage {
	s.Helper()
	options := azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(1))}
	found, err := from.PeekMessages(s.soon(), 100, &options)
	s.check(err)
	return found
}

// arrived waits until a number of messages can be peeked. The broker's own wait for the pipeline is limited.
func (s *scenario) arrived(from source, count int) []*azservicebus.ReceivedMessage {
	s.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if found := s.peek(from); len(found) == count {
			return found
		}
	}
	s.Fatalf("there are not %d messages", count)
	return nil
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	texts := make([]string, len(messages))
	for index, each := range messages {
		texts[index] = string(each.Body)
	}
	return texts
}
