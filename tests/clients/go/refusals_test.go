package clients

import (
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func (s *scenario) says(text, words string) {
	s.Helper()
	if !strings.Contains(text, words) {
		s.Fatalf("wanted '%s' in: %s", words, text)
	}
}

func TestTheErrorNamesAMissingEntity(t *testing.T) {
	s := begin(t)
	text := s.refused(azservicebus.CodeNotFound, s.sender("nowhere").SendMessage(s.soon(), message("x"), nil))
	s.says(text, "nowhere' could not be found")
	_, err := s.receiver("nowhere").ReceiveMessages(s.soon(), 1, nil)
	s.says(s.refused(azservicebus.CodeNotFound, err), "nowhere' could not be found")
	_, err = s.subscription(s.take("topic"), "none").PeekMessages(s.soon(), 1, nil)
	s.refused(azservicebus.CodeNotFound, err)
	_, err = s.client.AcceptSessionForQueue(s.soon(), "nowhere", "a", nil)
	s.refused(azservicebus.CodeNotFound, err)
}

func TestAWrongKeyAndAnExpiredTokenAreRefused(t *testing.T) {
	right := given(t, "SERVICEBUS_CONNECTION_STRING")
	wrong := regexp.MustCompile("SharedAccessKey=[^;]+").ReplaceAllString(right, "SharedAccessKey=AAAA")
	s := beginWith(t, wrong, nil)
	queue := s.take("plain")
	s.refused(azservicebus.CodeUnauthorizedAccess, s.sender(queue).SendMessage(s.soon(), message("x"), nil))
	s = opened(t, given(t, "EXPIRED"), nil)
	s.refused(azservicebus.CodeUnauthorizedAccess, s.sender(queue).SendMessage(s.soon(), message("x"), nil))
}

func TestTheErrorNamesAMissingRight(t *testing.T) {
	s := beginWith(t, given(t, "ONLY_LISTENS"), nil)
	queue := s.take("plain")
	err := s.sender(queue).SendMessage(s.soon(), message("x"), nil)
	s.says(s.refused(azservicebus.CodeUnauthorizedAccess, err), "'Send' claim")
	sends := opened(t, given(t, "ONLY_SENDS"), nil)
	sends.send(sends.sender(queue), message("x"))
	_, err = sends.receiver(queue).PeekMessages(s.soon(), 1, nil)
	s.says(s.refused(azservicebus.CodeUnauthorizedAccess, err), "'Listen' claim")
	equal(s, []string{"x"}, s.complete(s.receiver(queue), 1))
}

func TestADisabledQueueTakesNoMessage(t *testing.T) {
	s := begin(t)
	err := s.sender(s.take("disabled")).SendMessage(s.soon(), message("x"), nil)
	if err == nil {
		s.Fatal("a disabled queue took a message")
	}
	s.says(err.Error(), "com.microsoft:entity-disabled")
}

func TestSessionsNeedAnEntityThatRequiresThem(t *testing.T) {
	s := beginOnce(t)
	queue := s.take("sessions")
	if _, err := s.client.AcceptSessionForQueue(s.soon(), s.take("plain"), "a", nil); err == nil {
		s.Fatal("a queue without sessions gave one")
	}
	if err := s.sender(queue).SendMessage(s.soon(), message("x"), nil); err == nil {
		s.Fatal("a queue with sessions took a message without one")
	}
	if _, err := s.receiver(queue).ReceiveMessages(s.soon(), 1, nil); err == nil {
		s.Fatal("a queue with sessions gave messages without one")
	}
}
