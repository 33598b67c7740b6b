package drivertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history records what clients requested of one lock and the results, and is checked
// against the model of a mutex: each operation takes effect at one instant between its
// call and its return.
type history struct {
	// clock counts calls and returns. Timestamps do not order operations in virtual time:
	// many share one instant, and the search for an order then takes exponential time.
	clock atomic.Int64
	// queued: an acquisition may also fail because other waiters are before it.
	queued bool

	mu  sync.Mutex
	ops []porcupine.Operation
}

func newHistory(queued bool) *history { return &history{queued: queued} }

// try is an operation of a client: an acquisition or, if not, a release.
type try struct {
	client  int
	acquire bool
}

// record runs an operation that reports whether it succeeded.
func (h *history) record(client int, acquire bool, op func() bool) bool {
	call := h.clock.Add(1)
	ok := op()
	end := h.clock.Add(1)
	if h.queued && acquire && !ok {
		return ok // no check needed: others were before it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: try{client, acquire}, Call: call, Output: ok, Return: end,
	})
	return ok
}

// model is a mutex whose state is the client that has it, 0 for none. An acquisition may
// fail only while another client has the mutex.
func (h *history) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			owner, t, ok := state.(int), input.(try), output.(bool)
			switch {
			case t.acquire && ok:
				return owner == 0, t.client
			case t.acquire:
				return owner != 0, owner
			default:
				return ok && owner == t.client, 0
			}
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v: %v", input, output)
		},
	}
}

// check fails t unless the history is that of a mutex.
func (h *history) check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(h.model(), h.ops, time.Minute) {
	case porcupine.Illegal:
		t.Errorf("no mutex explains these %d operations", len(h.ops))
	case porcupine.Unknown:
		t.Errorf("could not check %d operations within a minute", len(h.ops))
	}
}
