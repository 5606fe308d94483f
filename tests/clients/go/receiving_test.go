package clients

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestEverySettlementDoesWhatItSays(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	s.sendNumbers(queue, 4)
	found := s.receive(receiver, 4)
	s.check(receiver.CompleteMessage(s.soon(), found[0], nil))
	changes := map[string]any{"why": "later"}
	s.check(receiver.AbandonMessage(s.soon(), found[1], &azservicebus.AbandonMessageOptions{PropertiesToModify: changes}))
	s.check(receiver.DeferMessage(s.soon(), found[2], &azservicebus.DeferMessageOptions{PropertiesToModify: changes}))
	s.check(receiver.DeadLetterMessage(s.soon(), found[3], &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("why"), ErrorDescription: to.Ptr("in words"), PropertiesToModify: changes,
	}))

	again := s.receiveOne(receiver)
	equal(s, "1", string(again.Body))
	equal(s, found[1].DeliveryCount+1, again.DeliveryCount)
	equal(s, changes, again.ApplicationProperties)
	s.check(receiver.CompleteMessage(s.soon(), again, nil))

	deferred, err := receiver.ReceiveDeferredMessages(s.soon(), []int64{*found[2].SequenceNumber}, nil)
	s.check(err)
	equal(s, []string{"2"}, bodies(deferred))
	equal(s, azservicebus.MessageStateDeferred, deferred[0].State)
	equal[any](s, "later", deferred[0].ApplicationProperties["why"])
	s.check(receiver.CompleteMessage(s.soon(), deferred[0], nil))

	dead := s.deadLetters(queue)
	letter := s.receiveOne(dead)
	equal(s, "3", string(letter.Body))
	equal(s, "why", *letter.DeadLetterReason)
	equal(s, "in words", *letter.DeadLetterErrorDescription)
	equal[any](s, "later", letter.ApplicationProperties["why"])
	s.check(dead.CompleteMessage(s.soon(), letter, nil))
	equal(s, 0, len(s.peek(receiver)))
}

func TestDeferredMessagesAreSettledInEveryWay(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	s.sendNumbers(queue, 3)
	var deferred []int64
	for _, each := range s.receive(receiver, 3) {
		s.check(receiver.DeferMessage(s.soon(), each, nil))
		deferred = append(deferred, *each.SequenceNumber)
	}
	s.noMore(receiver)
	found, err := receiver.ReceiveDeferredMessages(s.soon(), deferred, nil)
	s.check(err)
	equal(s, numbers(3), bodies(found))
	s.check(receiver.RenewMessageLock(s.soon(), found[0], nil))
	s.check(receiver.AbandonMessage(s.soon(), found[0], nil))
	s.check(receiver.DeferMessage(s.soon(), found[1], nil))
	s.check(receiver.DeadLetterMessage(s.soon(), found[2], nil))
	found, err = receiver.ReceiveDeferredMessages(s.soon(), deferred[:2], nil)
	s.check(err)
	equal(s, numbers(2), bodies(found))
	equal(s, []string{"2"}, s.complete(s.deadLetters(queue), 1))
}

func TestMessagesArePeekedFromTheLastPositionOrFromANumber(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	s.sendNumbers(queue, 30)
	s.arrived(s.receiver(queue), 30)
	var seen []*azservicebus.ReceivedMessage
	for range 2 {
		some, err := receiver.PeekMessages(s.soon(), 20, nil)
		s.check(err)
		seen = append(seen, some...)
	}
	equal(s, numbers(30), bodies(seen))
	equal(s, [16]byte{}, seen[0].LockToken)
	options := azservicebus.PeekMessagesOptions{FromSequenceNumber: seen[16].SequenceNumber}
	one, err := receiver.PeekMessages(s.soon(), 1, &options)
	s.check(err)
	equal(s, []string{"16"}, bodies(one))
}

func TestAReceivedAndDeletedMessageIsRemovedAtOnce(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	mode := azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	receiver := s.receiverWith(queue, &mode)
	s.sendNumbers(queue, 30)
	equal(s, numbers(30), bodies(s.receive(receiver, 30)))
	equal(s, 0, len(s.peek(receiver)))
}

func TestAReceiverOfAnEmptyQueueTimesOutAndLaterGetsNewMessages(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	for range 3 {
		s.noMore(receiver)
	}
	s.send(s.sender(queue), message("came"))
	equal(s, []string{"came"}, s.complete(receiver, 1))
}

func TestMessagesThatWereNotReceivedAreFreeWhenTheReceiverCloses(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	s.sendNumbers(queue, 10)
	first := s.receiver(queue)
	s.arrived(first, 10)
	held := s.receive(first, 4)
	s.check(first.Close(s.soon()))
	second := s.receiver(queue)
	equal(s, []string{"4", "5", "6", "7", "8", "9"}, s.complete(second, 6))
	// Its locks outlive the first receiver, and its messages are settled on the management link.
	for _, each := range held {
		s.check(second.CompleteMessage(s.soon(), each, nil))
	}
	equal(s, 0, len(s.peek(second)))
}

func TestARenewedLockOutlivesItsFirstExpiryAndAnotherIsLost(t *testing.T) {
	s := begin(t)
	queue := s.take("short")
	receiver := s.receiver(queue)
	s.sendNumbers(queue, 2)
	s.arrived(receiver, 2)
	found := s.receive(receiver, 2)
	for range 3 {
		before := *found[0].LockedUntil
		time.Sleep(4 * time.Second)
		s.check(receiver.RenewMessageLock(s.soon(), found[0], nil))
		if !found[0].LockedUntil.After(before) {
			s.Fatalf("locked until %v, then until %v", before, found[0].LockedUntil)
		}
	}
	s.check(receiver.CompleteMessage(s.soon(), found[0], nil))
	s.refused(azservicebus.CodeLockLost, receiver.CompleteMessage(s.soon(), found[1], nil))
	s.refused(azservicebus.CodeLockLost, receiver.RenewMessageLock(s.soon(), found[1], nil))
	again := s.receiveOne(receiver)
	equal(s, "1", string(again.Body))
	equal(s, found[1].DeliveryCount+1, again.DeliveryCount)
	s.check(receiver.CompleteMessage(s.soon(), again, nil))
}

func TestASettledMessageCannotBeSettledAgain(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	s.send(s.sender(queue), message("x"))
	found := s.receiveOne(receiver)
	s.check(receiver.CompleteMessage(s.soon(), found, nil))
	s.refused(azservicebus.CodeLockLost, receiver.RenewMessageLock(s.soon(), found, nil))
}

func TestAMessageDeliveredTooOftenIsDeadLettered(t *testing.T) {
	s := begin(t)
	queue := s.take("twice")
	receiver := s.receiver(queue)
	s.send(s.sender(queue), message("poison"))
	for range 2 {
		s.check(receiver.AbandonMessage(s.soon(), s.receiveOne(receiver), nil))
	}
	letter := s.receiveOne(s.deadLetters(queue))
	equal(s, "MaxDeliveryCountExceeded", *letter.DeadLetterReason)
}

func TestAWaitingReceiverIsCancelledAndGoesOn(t *testing.T) {
	s := begin(t)
	queue := s.take("plain")
	receiver := s.receiver(queue)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := receiver.ReceiveMessages(ctx, 5, nil)
		ended <- err
	}()
	time.Sleep(short)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		s.Fatal(err)
	}
	s.sendNumbers(queue, 3)
	equal(s, numbers(3), s.complete(receiver, 3))
}
