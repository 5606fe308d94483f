package clients

import (
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestASessionIsReceivedInOrderByTheOneThatHoldsIt(t *testing.T) {
	s := begin(t)
	queue := s.take("sessions")
	sender := s.sender(queue)
	for _, text := range numbers(5) {
		s.send(sender, inSession("a", text), inSession("b", text))
	}
	a, b := s.session(queue, "a"), s.session(queue, "b")
	equal(s, "a", a.SessionID())
	equal(s, numbers(5), s.complete(a, 5))
	found := s.receive(b, 5)
	equal(s, numbers(5), bodies(found))
	equal(s, "b", *found[0].SessionID)
	second := opened(t, given(t, "SERVICEBUS_CONNECTION_STRING"), &once)
	if _, err := second.client.AcceptSessionForQueue(s.soon(), queue, "a", nil); err == nil {
		s.Fatal("a session was accepted twice")
	}
	s.check(a.Close(s.soon()))
	equal(s, "a", s.session(queue, "a").SessionID())
}

func TestTheNextFreeSessionsAreAcceptedUntilThereIsNone(t *testing.T) {
	s := beginOnce(t)
	queue := s.take("sessions")
	s.send(s.sender(queue), inSession("x", "1"), inSession("y", "2"))
	var found []string
	for range 2 {
		receiver, err := s.client.AcceptNextSessionForQueue(s.soon(), queue, nil)
		s.check(err)
		equal(s, 1, len(s.complete(receiver, 1)))
		found = append(found, receiver.SessionID())
	}
	slices.Sort(found)
	equal(s, []string{"x", "y"}, found)
	_, err := s.client.AcceptNextSessionForQueue(s.within(3*time.Second), queue, nil)
	if err == nil {
		s.Fatal("a session was accepted twice")
	}
}

func TestTheStateOfASessionStaysWithIt(t *testing.T) {
	s := begin(t)
	queue := s.take("sessions")
	receiver := s.session(queue, "a")
	state, err := receiver.GetSessionState(s.soon(), nil)
	s.check(err)
	equal(s, 0, len(state))
	s.check(receiver.SetSessionState(s.soon(), []byte("halfway"), nil))
	s.check(receiver.Close(s.soon()))
	receiver = s.session(queue, "a")
	state, err = receiver.GetSessionState(s.soon(), nil)
	s.check(err)
	equal(s, "halfway", string(state))
	s.check(receiver.SetSessionState(s.soon(), nil, nil))
	state, err = receiver.GetSessionState(s.soon(), nil)
	s.check(err)
	equal(s, 0, len(state))
}

func TestMessagesOfASessionAreSettledInEveryWay(t *testing.T) {
	s := begin(t)
	queue := s.take("sessions")
	sender, receiver := s.sender(queue), s.session(queue, "a")
	for _, text := range numbers(4) {
		s.send(sender, inSession("a", text))
	}
	found := s.receive(receiver, 4)
	s.check(receiver.CompleteMessage(s.soon(), found[0], nil))
	s.check(receiver.AbandonMessage(s.soon(), found[1], nil))
	s.check(receiver.DeferMessage(s.soon(), found[2], nil))
	s.check(receiver.DeadLetterMessage(s.soon(), found[3], nil))
	equal(s, []string{"1"}, s.complete(receiver, 1))
	deferred, err := receiver.ReceiveDeferredMessages(s.soon(), []int64{*found[2].SequenceNumber}, nil)
	s.check(err)
	equal(s, []string{"2"}, bodies(deferred))
	s.check(receiver.CompleteMessage(s.soon(), deferred[0], nil))
	equal(s, 0, len(s.peek(receiver)))
	equal(s, []string{"3"}, s.complete(s.deadLetters(queue), 1))
}

func TestASessionIsReceivedAndDeleted(t *testing.T) {
	s := begin(t)
	queue := s.take("sessions")
	s.send(s.sender(queue), inSession("a", "0"), inSession("a", "1"))
	mode := azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	receiver, err := s.client.AcceptSessionForQueue(s.soon(), queue, "a", &mode)
	s.check(err)
	equal(s, numbers(2), bodies(s.receive(receiver, 2)))
	equal(s, 0, len(s.peek(receiver)))
}

func TestARenewedSessionOutlivesItsFirstLock(t *testing.T) {
	s := begin(t)
	queue := s.take("short-sessions")
	s.send(s.sender(queue), inSession("a", "x"))
	receiver := s.session(queue, "a")
	found := s.receiveOne(receiver)
	for range 3 {
		before := receiver.LockedUntil()
		time.Sleep(4 * time.Second)
		s.check(receiver.RenewSessionLock(s.soon(), nil))
		if !receiver.LockedUntil().After(before) {
			s.Fatalf("locked until %v, then until %v", before, receiver.LockedUntil())
		}
	}
	s.check(receiver.CompleteMessage(s.soon(), found, nil))
}

func TestASessionWhoseLockExpiredIsFreeForAnother(t *testing.T) {
	s := beginOnce(t)
	queue := s.take("short-sessions")
	s.send(s.sender(queue), inSession("a", "x"))
	receiver := s.session(queue, "a")
	s.receiveOne(receiver)
	time.Sleep(time.Until(receiver.LockedUntil()) + short)
	s.refused(azservicebus.CodeLockLost, receiver.RenewSessionLock(s.soon(), nil))
	other := opened(t, given(t, "SERVICEBUS_CONNECTION_STRING"), nil)
	again := other.receiveOne(other.session(queue, "a"))
	equal(s, "x", string(again.Body))
	equal(s, uint32(2), again.DeliveryCount)
}

func TestAMessageIsNotCompletedAfterTheLockOfItsSessionExpired(t *testing.T) {
	s := begin(t)
	queue := s.take("short-sessions")
	s.send(s.sender(queue), inSession("a", "x"))
	receiver := s.session(queue, "a")
	found := s.receiveOne(receiver)
	time.Sleep(time.Until(receiver.LockedUntil()) + short)
	// After the refusal the client accepts the session again, takes the message for settled, and reports no error.
	_ = receiver.CompleteMessage(s.soon(), found, nil)
	equal(s, []string{"x"}, s.complete(receiver, 1))
}

func TestSessionsAreListed(t *testing.T) {
	s := begin(t)
	queue := s.take("sessions")
	s.send(s.sender(queue), inSession("a", "x"), inSession("b", "x"))
	stateful := s.session(queue, "c")
	s.check(stateful.SetSessionState(s.soon(), []byte("state"), nil))
	equal(s, []string{"a", "b", "c"}, s.sessions(queue, nil))
	before := time.Now().Add(-time.Hour)
	equal(s, []string{"c"}, s.sessions(queue, &azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &before}))
}

func (s *scenario) sessions(queue string, options *azservicebus.ListSessionsOptions) []string {
	s.Helper()
	var found []string
	for pager := s.client.NewListSessionsForQueuePager(queue, options); pager.More(); {
		page, err := pager.NextPage(s.soon())
		s.check(err)
		found = append(found, page.Sessions...)
	}
	slices.Sort(found)
	return found
}
