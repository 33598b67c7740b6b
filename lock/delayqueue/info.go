package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// State is the state of a message.
type State uint8

const (
	// Delayed: the message waits for its due time.
	Delayed State = iota
	// Ready: the message is due, or its last worker's lease has ended, and it waits for a
	// worker.
	Ready
	// Leased: a worker has the message.
	Leased
	// Dead: the message is a dead letter.
	Dead

	states = iota
)

var stateNames = [states]string{"delayed", "ready", "leased", "dead"}

func (s State) String() string {
	if s >= states {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// Info describes a message. Its times are by the server's clock.
type Info struct {
	ID      string
	Payload []byte
	// Size is the size of the payload in bytes. Payload is shorter in a list that clips
	// it, see [ListOptions.MaxPayload].
	Size  int
	State State

	// Put is when the message was put. Due is when it is or was due; after a failure it
	// is the time of the next attempt.
	Put, Due time.Time
	// Until is, if Leased, when the worker's lease ends unless it is renewed.
	Until time.Time
	// Died is, if Dead, when the message died.
	Died time.Time

	// Attempt is how often the message was claimed.
	Attempt int
	// LastError is the error of the last failed attempt.
	LastError string
}

// Get describes a message, or returns [ErrNotFound].
func (q *Queue) Get(ctx context.Context, id string) (Info, error) {
	if err := ValidateID(id); err != nil {
		return Info{}, err
	}
	reply, err := q.ask(ctx, passing, getScript, id)
	if err != nil {
		return Info{}, err
	}
	r := reader{parts: reply}
	now := r.time()
	if r.err == nil && len(r.parts) == 0 {
		return Info{}, fmt.Errorf("delayqueue: %q: message %q: %w", q.name, id, ErrNotFound)
	}
	info := r.info(now) // first: it may set r.err
	return info, r.err
}

// info reads the result of describe.
func (r *reader) info(now time.Time) Info {
	m := reader{parts: take[[]any](r)}
	i := Info{ID: m.text()}
	state, at := m.text(), m.time()
	i.Attempt = int(m.number())
	_ = m.number() // the token, which is only for the claimant
	i.Put, i.Due = m.time(), m.time()
	i.LastError, i.Payload = m.text(), []byte(m.text())
	i.Size = len(i.Payload)
	switch {
	case state == "dead":
		i.State, i.Died = Dead, at
	case state == "leased":
		i.State, i.Until = Leased, at
	case !i.Due.After(now):
		i.State = Ready
	}
	r.err = cmp.Or(r.err, m.err)
	return i
}

// Stats are the counts and ages of a queue's messages.
type Stats struct {
	Delayed int64 // messages that wait for their due time
	Ready   int64 // the backlog: due, or left by a worker whose lease has ended
	Leased  int64 // with workers
	Dead    int64 // dead letters

	// Age is for how long the first ready message has been ready; zero if none is. It
	// grows if there are too few workers.
	Age time.Duration
	// NextDue is when the first waiting message is or was due, by the server's clock; the
	// zero time if none waits.
	NextDue time.Time
	// OldestDeath is when the first of the dead letters died; the zero time if there are
	// none.
	OldestDeath time.Time
}

// Stats counts the messages, in one request that takes the same time for any number of
// messages.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	reply, err := q.ask(ctx, passing, statsScript)
	if err != nil {
		return Stats{}, err
	}
	r := reader{parts: reply}
	now := r.time()
	s := Stats{Ready: r.number(), Delayed: r.number(), Leased: r.number(), Dead: r.number()}
	if due := r.number(); due >= 0 {
		s.NextDue = time.UnixMilli(due)
		s.Age = max(0, now.Sub(s.NextDue))
	}
	if died := r.number(); died >= 0 {
		s.OldestDeath = time.UnixMilli(died)
	}
	return s, r.err
}
