package delayqueue

import (
	"context"
	"fmt"
	"sync"
)

// The words of settle.lua.
const (
	actionDone  = "done"
	actionRetry = "retry"
	actionDead  = "dead"
	actionBack  = "back"
)

// settlement is a worker's word on what became of a message that it had claimed.
type settlement struct {
	action string
	id     string
	token  int64
	after  int64  // ms, with retry
	err    string // with retry and dead

	// outcome is the server's answer, or failure why there is none, once settled
	// is closed.
	settled chan struct{}
	outcome int64
	failure error
}

// settler tells the server of settlements. While one request is under way, those
// that come meanwhile gather for the next: the more there are, the fewer requests
// each costs, and none waits for another without need.
type settler struct {
	queue *Queue

	mu      sync.Mutex
	pending []*settlement // guarded by mu
	running bool          // guarded by mu: somebody sends
}

// settle tells the server once and returns its answer: 1 for so be it, 0 if the
// message is another claimant's or no more, 2 if it left the claimant's hands.
func (s *settler) settle(st settlement) (int64, error) {
	st.settled = make(chan struct{})
	s.mu.Lock()
	s.pending = append(s.pending, &st)
	send := !s.running
	s.running = true
	s.mu.Unlock()
	if send {
		go s.send()
	}
	<-st.settled
	return st.outcome, st.failure
}

// send sends until nothing is pending.
func (s *settler) send() {
	for {
		s.mu.Lock()
		some := s.pending[:min(batch, len(s.pending))]
		s.pending = s.pending[len(some):]
		s.running = len(some) > 0
		s.mu.Unlock()
		if len(some) == 0 {
			return
		}
		s.sendSome(some)
	}
}

func (s *settler) sendSome(some []*settlement) {
	args := make([]any, 0, 5*len(some))
	for _, st := range some {
		args = append(args, st.action, st.id, st.token, st.after, st.err)
	}
	// Not by a worker's context: at its end there is the most to tell.
	reply, err := s.queue.once(context.Background(), settleScript, args...)
	var outcomes []int64
	if err == nil {
		outcomes, err = codes(reply, len(some))
	}
	for i, st := range some {
		if err != nil {
			st.failure = fmt.Errorf("delayqueue: %q: message %q: %w", s.queue.name, st.id, err)
		} else {
			st.outcome = outcomes[i]
		}
		close(st.settled)
	}
}
