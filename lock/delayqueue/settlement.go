package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasewheel/leasewheel/lock"
)

// actions are those of settle.lua.
var actions = [outcomes]string{Done: "done", Retried: "retry", Buried: "dead", Returned: "back"}

// settlement is what a worker asks the server to do with a message that it had claimed.
type settlement struct {
	*Delivery
	as    Outcome
	after int64  // ms, if Retried
	err   string // if Retried or Buried

	// outcome is the server's reply, or failure the reason for its absence, once settled
	// is closed.
	settled chan struct{}
	outcome int64
	failure error
}

// settler sends settlements to the server. While one request is in flight, new
// settlements queue for the next one. Under load each request carries more of them, and
// none waits without need.
type settler struct {
	queue *Queue

	mu      sync.Mutex
	pending []*settlement // guarded by mu
	running bool          // guarded by mu: a goroutine sends
}

// settle sends one settlement and returns the reply: 1 applied, 0 the message is another
// claimant's or deleted, 2 it has left the claimant.
func (s *settler) settle(st settlement) (int64, error) {
	st.settled = make(chan struct{})
	s.mu.Lock()
	s.pending = append(s.pending, &st)
	if !s.running {
		s.running = true
		go s.send()
	}
	s.mu.Unlock()
	<-st.settled
	return st.outcome, st.failure
}

// send sends until nothing is pending. Settlements that have queued behind a request that fails
// fail with it: on a server that is mute, each would wait for those before it.
func (s *settler) send() {
	for failed := error(nil); ; {
		s.mu.Lock()
		some := s.pending
		if failed == nil {
			some = some[:min(batch, len(some))]
		}
		s.pending = s.pending[len(some):]
		s.running = len(some) > 0
		s.mu.Unlock()
		switch {
		case len(some) == 0:
			return
		case failed == nil:
			failed = s.sendSome(some)
		default:
			s.answer(some, nil, errors.Join(failed, lock.ErrNotDone))
			failed = nil
		}
	}
}

func (s *settler) sendSome(some []*settlement) error {
	args := make([]any, 0, 5*len(some))
	for _, st := range some {
		args = append(args, actions[st.as], st.ID, st.Token, st.after, st.err)
	}
	// Not bounded by a worker's context: most settlements come when the worker ends.
	reply, err := s.queue.once(context.Background(), settleScript, s.queue.keys, args...)
	var outcomes []int64
	if err == nil {
		outcomes, err = codes(reply, len(some))
	}
	s.answer(some, outcomes, err)
	return err
}

// answer hands out the outcomes, or the reason for their absence.
func (s *settler) answer(some []*settlement, outcomes []int64, err error) {
	for i, st := range some {
		if err != nil {
			st.failure = fmt.Errorf("delayqueue: %q: message %q: %w", s.queue.name, st.ID, err)
		} else {
			st.outcome = outcomes[i]
		}
		close(st.settled)
	}
}
