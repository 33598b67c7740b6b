package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// lateArrival is how long after its deadline a request may still change something at a
// node, by the contract of [lock.Store].
const lateArrival = time.Second

// fate is what is known of an attempt's requests to the nodes: whether the hold's end
// was asked for, and which requests have an unknown outcome.
type fate struct {
	mu     sync.Mutex
	over   bool        // guarded by mu; the end of what was granted is asked for
	finals []time.Time // guarded by mu; by node, until when a request may still arrive
}

func (s *Store) newFate() *fate { return &fate{finals: make([]time.Time, len(s.nodes))} }

// end notes that the end of what was granted is asked for.
func (f *fate) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// ended reports whether the end of what was granted is asked for.
func (f *fate) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// answered notes that a request with the given deadline has returned with err. It
// reports whether the node must be asked to end what the request may have done: its
// release was sent before.
func (f *fate) answered(n *node, err error, by time.Time) (end bool) {
	final := finalFor(err, by)
	f.mu.Lock()
	defer f.mu.Unlock()
	if final.After(f.finals[n.index]) {
		f.finals[n.index] = final
	}
	return f.over && !errors.Is(err, lock.ErrNotDone)
}

// final returns when a release is final at a node, if one that was sent at the given
// instant is not.
func (f *fate) final(n *node, sent time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if final := f.finals[n.index]; final.After(sent) {
		return final
	}
	return time.Time{}
}

// finalFor returns when a release is final that follows a request with the given
// deadline and outcome: at once, the zero time, unless the outcome is unknown.
func finalFor(err error, by time.Time) time.Time {
	if err == nil || errors.Is(err, lock.ErrNotDone) {
		return time.Time{}
	}
	return by.Add(lateArrival)
}
