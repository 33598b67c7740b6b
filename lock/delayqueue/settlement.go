package delayqueue

import (
	"context"
	"errors"
	"sync"

	"github.com/leasewheel/leasewheel/lock"
)

// settlement is what a worker asks the server to do with a message that it had claimed.
type settlement struct {
	*Delivery
	as    Outcome
	after int64  // ms, if Retried
	err   string // if Retried or Buried
}

// settlements are those of one request.
type settlements struct {
	count int
	args  []any
	// replies, or err, are set when done is closed.
	done    chan struct{}
	replies []int64
	err     error
}

// end has the callers receive the reply, or the error.
func (r *settlements) end(reply []any, err error) {
	r.replies, r.err = codes(r.count, reply, err)
	close(r.done)
}

// settler sends settlements to the server. While one request is in flight, new
// settlements queue for the next one: 64 handlers handle half as many messages again.
type settler struct {
	queue *Queue

	mu      sync.Mutex
	queued  []*settlements // guarded by mu; all but the last are full
	sending bool           // guarded by mu
}

// settle sends one settlement and returns the reply: 1 applied, 0 the message is another
// claimant's or deleted, 2 it has left the claimant.
func (s *settler) settle(st settlement) (int64, error) {
	s.mu.Lock()
	last := len(s.queued) - 1
	if last < 0 || s.queued[last].count == batch {
		s.queued, last = append(s.queued, &settlements{done: make(chan struct{})}), last+1
	}
	r := s.queued[last]
	at := r.count
	r.count++
	r.args = append(r.args, st.as.String(), st.ID, st.Token, st.after, st.err)
	if !s.sending {
		s.sending = true
		go s.send()
	}
	s.mu.Unlock()
	<-r.done
	return r.replies[at], r.err
}

// send sends what has queued first, and then has the rest sent, also after a panic of the client or
// runtime.Goexit, as in a user's hook. What has queued behind a request that fails fails with it: on
// a server that is mute, each would wait for those before it.
func (s *settler) send() {
	s.mu.Lock()
	r := s.queued[0]
	s.queued = s.queued[1:]
	s.mu.Unlock()
	var reply []any
	var err error = &lock.PanicError{} // remains after runtime.Goexit
	defer func() {
		r.end(reply, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.err != nil {
			for _, behind := range s.queued {
				behind.end(nil, errors.Join(r.err, lock.ErrNotDone))
			}
			s.queued = nil
		}
		if s.sending = len(s.queued) > 0; s.sending {
			go s.send()
		}
	}()
	// Not bounded by a worker's context: most settlements come when the worker ends.
	err = s.queue.guard("a request with outcomes", "", func() (err error) {
		reply, err = s.queue.once(context.Background(), settleScript, s.queue.keys, r.args...)
		return err
	})
}
