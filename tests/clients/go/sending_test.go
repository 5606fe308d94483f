package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

func TestSingleMessagesAndBatchesArriveInTheOrderTheyWereSent(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender := s.sender(queue)
	s.send(sender, message("a"))
	s.sendBatch(sender, message("b"), message("c"))
	s.send(sender, message("d"))
	equal(s, []string{"a", "b", "c", "d"}, s.complete(s.receiver(queue), 4))
}

func TestEverythingAboutAMessageComesBackAsItWasSent(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	day := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	properties := map[string]any{"text": "ö", "number": int64(-7), "half": 0.5, "yes": true, "day": day}
	sent := azservicebus.Message{
		ApplicationProperties: properties,
		Body:                  []byte{0, 1, 255},
		ContentType:           to.Ptr("application/x"),
		CorrelationID:         to.Ptr("correlation"),
		MessageID:             to.Ptr("id"),
		PartitionKey:          to.Ptr("key"),
		ReplyTo:               to.Ptr("reply"),
		ReplyToSessionID:      to.Ptr("reply-session"),
		Subject:               to.Ptr("subject"),
		TimeToLive:            to.Ptr(time.Hour),
		To:                    to.Ptr("to"),
	}
	before := time.Now().Add(-time.Minute)
	s.send(s.sender(queue), &sent)
	receiver := s.receiver(queue)
	found := s.receiveOne(receiver)
	found.ApplicationProperties["day"] = found.ApplicationProperties["day"].(time.Time).UTC()
	equal(s, &sent, found.Message())
	equal(s, int64(1), *found.SequenceNumber)
	equal(s, uint32(1), found.DeliveryCount)
	equal(s, azservicebus.MessageStateActive, found.State)
	if found.EnqueuedTime.Before(before) || !found.LockedUntil.After(*found.EnqueuedTime) {
		s.Fatalf("enqueued at %v, locked until %v", found.EnqueuedTime, found.LockedUntil)
	}
	equal(s, found.EnqueuedTime.Add(time.Hour), *found.ExpiresAt)
	s.check(receiver.CompleteMessage(s.soon(), found, nil))
}

func TestBodiesThatAreValuesAndSequencesComeBackAsSuch(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender, receiver := s.sender(queue), s.receiver(queue)
	values := []azservicebus.AMQPAnnotatedMessageBody{
		{Value: "text"},
		{Sequence: [][]any{{"a", int64(1)}, {true}}},
		{Data: [][]byte{[]byte("one"), []byte("two")}},
	}
	for _, each := range values {
		annotated := azservicebus.AMQPAnnotatedMessage{
			Body:               each,
			Header:             &azservicebus.AMQPAnnotatedMessageHeader{Priority: 7},
			MessageAnnotations: map[any]any{"x-mine": "kept"},
		}
		s.check(sender.SendAMQPAnnotatedMessage(s.soon(), &annotated, nil))
	}
	for index, each := range s.receive(receiver, len(values)) {
		equal(s, values[index], each.RawAMQPMessage.Body)
		equal(s, uint8(7), each.RawAMQPMessage.Header.Priority)
		equal[any](s, "kept", each.RawAMQPMessage.MessageAnnotations["x-mine"])
		s.check(receiver.CompleteMessage(s.soon(), each, nil))
	}
}

func TestABatchAcceptsNoMoreThanTheLinkAllows(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender := s.sender(queue)
	batch, err := sender.NewMessageBatch(s.soon(), nil)
	s.check(err)
	large := message(strings.Repeat("x", 50_000))
	for err == nil {
		err = batch.AddMessage(large, nil)
	}
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.Fatal(err)
	}
	equal(s, 5, batch.NumMessages())
	s.check(sender.SendMessageBatch(s.soon(), batch, nil))
	equal(s, 5, len(s.complete(s.receiver(queue), 5)))
}

func TestATooLargeMessageIsRefusedAndTheSenderContinues(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender := s.sender(queue)
	err := sender.SendMessage(s.soon(), message(strings.Repeat("x", 256*1024)), nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.Fatal(err)
	}
	fits := strings.Repeat("y", 255*1024)
	s.send(sender, message(fits))
	equal(s, []string{fits}, s.complete(s.receiver(queue), 1))
}

func TestConcurrentSendersShareALinkAndNothingIsLost(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	sender := s.sender(queue)
	var group sync.WaitGroup
	for _, text := range numbers(50) {
		group.Go(func() {
			if err := sender.SendMessage(s.soon(), message(text), nil); err != nil {
				s.Error(err)
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, text := range s.complete(s.receiver(queue), 50) {
		seen[text] = true
	}
	equal(s, 50, len(seen))
}

func TestMessagesTravelOverTLS(t *testing.T) {
	// By default, the client looks for a certificate of the host with its port.
	options := azservicebus.ClientOptions{TLSConfig: &tls.Config{ServerName: "localhost"}}
	s := beginWith(t, given(t, "SECURE"), &options)
	queue := s.take("plain")
	s.sendNumbers(queue, 3)
	equal(s, numbers(3), s.complete(s.receiver(queue), 3))
}

func TestMessagesTravelOverWebSockets(t *testing.T) {
	dial := func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		connection, _, err := websocket.Dial(ctx, args.Host, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
	}
	s := beginWith(t, given(t, "ADMINISTRATION"), &azservicebus.ClientOptions{NewWebSocketConn: dial})
	queue := s.take("plain")
	sender := s.sender(queue)
	s.sendNumbers(queue, 3)
	large := strings.Repeat("y", 200*1024)
	s.send(sender, message(large))
	equal(s, append(numbers(3), large), s.complete(s.receiver(queue), 4))
}
