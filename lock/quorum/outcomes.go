package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// outcomes records the outcomes of an attempt's requests to the nodes: which of them are
// unknown, and whether the release of the hold was requested.
type outcomes struct {
	mu     sync.Mutex
	over   bool        // guarded by mu; the release of the hold was requested
	asked  []int       // guarded by mu; by node, the requests of which no reply was driver.ErrNotDone
	finals []time.Time // guarded by mu; by node, until when a request may still arrive
}

func (s *Store) newOutcomes() *outcomes {
	return &outcomes{asked: make([]int, len(s.nodes)), finals: make([]time.Time, len(s.nodes))}
}

// end records that the release of the hold was requested.
func (f *outcomes) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// ended reports whether the release of the hold was requested.
func (f *outcomes) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// asks records that a request is about to be sent.
func (f *outcomes) asks(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[n.index]++
}

// mayHold reports whether a node may have the hold, now or later.
func (f *outcomes) mayHold(n *node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[n.index] > 0
}

// answered records that a request with the given deadline has returned with err. It
// reports whether the node must release again what the request may have granted, since
// the release was sent before.
func (f *outcomes) answered(n *node, err error, by time.Time) (end bool) {
	final := finalFor(err, by)
	f.mu.Lock()
	defer f.mu.Unlock()
	if final.After(f.finals[n.index]) {
		f.finals[n.index] = final
	}
	if errors.Is(err, driver.ErrNotDone) {
		f.asked[n.index]--
		return false
	}
	return f.over
}

// final returns when a release becomes final at a node. It is the zero time if a release
// that was sent at the given instant is final.
func (f *outcomes) final(n *node, sent time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if final := f.finals[n.index]; final.After(sent) {
		return final
	}
	return time.Time{}
}

// finalFor returns when a release is final that follows a request with the given deadline
// and outcome: at once, the zero time, unless the outcome is unknown.
func finalFor(err error, by time.Time) time.Time {
	if err == nil || errors.Is(err, driver.ErrNotDone) {
		return time.Time{}
	}
	return by.Add(driver.MaxLateness)
}
