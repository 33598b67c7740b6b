package delayqueue

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of a [Message].
const (
	// MaxID is the length of the longest accepted id, in bytes.
	MaxID = 512
	// MaxDelay is how far away a due time may be.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// Message is work to be done at a later time.
type Message struct {
	// ID names the message in the queue: 1 to [MaxID] bytes of UTF-8 without control
	// characters. The queue has one message of an id at a time, so a Put may be repeated.
	// When a message was handled or cancelled, its id is free again. Default: a random
	// one.
	ID string
	// Payload is the handler's input, up to [Config.MaxPayload] bytes. It may be empty if
	// there is an ID.
	Payload []byte

	// Delay is how long after the Put the message is due, by the server's clock: up to
	// [MaxDelay], rounded up to a millisecond. Zero: at once.
	Delay time.Duration
	// Due is, instead of Delay, the instant at which the message is due by the server's
	// clock; an instant in the past means at once.
	Due time.Time
}

// prepare returns an error for an invalid message, and gives it an id if it has none.
func (m *Message) prepare(most int, now time.Time) error {
	if m.ID != "" {
		if err := ValidateID(m.ID); err != nil {
			return err
		}
	}
	switch {
	case len(m.Payload) > most:
		return invalid("message %q has a payload of %d bytes; accepted are up to %d, by Config.MaxPayload: store large data elsewhere and put its address", m.ID, len(m.Payload), most)
	case len(m.Payload) == 0 && m.ID == "":
		return invalid("a message needs an id or a payload")
	case m.Delay != 0 && !m.Due.IsZero():
		return invalid("message %q has both a Delay and a Due; give one", m.ID)
	case m.Delay < 0 || m.Delay > MaxDelay:
		return invalid("a delay of %v; accepted are 0 … %v", m.Delay, MaxDelay)
	case m.Due.After(now.Add(MaxDelay)):
		return invalid("a due time of %v is further than %v away", m.Due.Format(time.RFC3339), MaxDelay)
	}
	m.ID = cmp.Or(m.ID, rand.Text())
	return nil
}

// ValidateID returns an [ErrInvalid] for an id that no [Message] may have.
func ValidateID(id string) error {
	switch {
	case id == "":
		return invalid("the id of a message is empty")
	case len(id) > MaxID:
		return invalid("the id of a message has %d bytes; accepted are up to %d", len(id), MaxID)
	case !utf8.ValidString(id):
		return invalid("the id of a message is not UTF-8")
	case strings.ContainsFunc(id, unicode.IsControl):
		return invalid("the id of a message holds a control character")
	}
	return nil
}

// instant returns the due time in the form that scripts take.
func (m *Message) instant() (kind string, ms int64) {
	if m.Due.IsZero() {
		return "in", ceilMillis(m.Delay)
	}
	return "at", ceilMillis(max(0, m.Due.Sub(time.UnixMilli(0)))) // the ms of an earlier one may overflow
}

// args returns the message in the form that put.lua takes.
func (m *Message) args(nonce string) []any {
	kind, ms := m.instant()
	return []any{m.ID, kind, ms, nonce, m.Payload}
}

// ceilMillis returns d in ms, rounded up.
func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Put puts a message into the queue and returns its id. If the queue has a message of
// that id already, Put returns [ErrDuplicate] and the id. A Put whose reply was lost is
// repeated and is not its own duplicate.
func (q *Queue) Put(ctx context.Context, m Message) (id string, err error) {
	receipts, err := q.PutAll(ctx, []Message{m})
	if err != nil {
		return "", err
	}
	if receipts[0].Duplicate {
		return receipts[0].ID, fmt.Errorf("delayqueue: %q: message %q: %w", q.name, receipts[0].ID, ErrDuplicate)
	}
	return receipts[0].ID, nil
}

// Receipt is the result for one message of a [Queue.PutAll].
type Receipt struct {
	ID string
	// Duplicate: the queue had a message of that id already.
	Duplicate bool
}

// PutAll puts messages into the queue in their order, some dozens in a request. If one is
// invalid, PutAll puts none. After another error the receipts are those of the messages
// that were put, or were duplicates; some of those that follow may have been put.
func (q *Queue) PutAll(ctx context.Context, messages []Message) ([]Receipt, error) {
	now := time.Now()
	named := slices.Clone(messages)
	for i := range named {
		if err := named[i].prepare(q.config.MaxPayload, now); err != nil {
			return nil, err
		}
	}
	// Each message has a nonce of its own: a second message of the same id is a
	// duplicate, and not a repeated request.
	nonce := rand.Text()[:13]
	receipts := make([]Receipt, 0, len(named))
	for len(named) > 0 {
		n := portion(named)
		some, err := q.put(ctx, named[:n], nonce+strconv.Itoa(len(receipts)))
		receipts = append(receipts, some...)
		if err != nil {
			return receipts, err
		}
		named = named[n:]
	}
	return receipts, nil
}

// portion returns how many of the messages go into one request.
func portion(messages []Message) int {
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Payload)
		if i > 0 && bytes > batchBytes || i == batch {
			return i
		}
	}
	return len(messages)
}

// put puts messages in one request.
func (q *Queue) put(ctx context.Context, messages []Message, nonce string) ([]Receipt, error) {
	args := []any{q.config.MaxLength}
	for i := range messages {
		args = append(args, messages[i].args(nonce+"."+strconv.Itoa(i))...)
	}
	reply, err := q.ask(ctx, passing, putScript, args...)
	outcomes, err := codes(len(messages), reply, err)
	if err != nil {
		return nil, err
	}
	receipts := make([]Receipt, 0, len(messages))
	for i, outcome := range outcomes {
		if outcome < 0 {
			return receipts, fmt.Errorf("delayqueue: %q: %w: it has %d messages", q.name, ErrFull, q.config.MaxLength)
		}
		receipts = append(receipts, Receipt{ID: messages[i].ID, Duplicate: outcome == 0})
	}
	return receipts, nil
}
