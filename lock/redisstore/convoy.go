package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// convoy sends the requests of this process to one node. One that finds fewer than
// flights under way leaves at once and alone; those that come meanwhile wait, and
// leave together, in one request, when the next flight is free: group commit. So a
// lone request loses no time, and many cost little more than a few.
type convoy struct {
	store *Store

	mu      sync.Mutex
	waiting []*trip // guarded by mu; empty unless all flights are under way
	flying  int     // guarded by mu; at most flights
}

const (
	flights  = 3
	mostSeat = 64 // keeps the server from others for about 0.3 ms
)

// trip is one request on its way.
type trip struct {
	ctx context.Context
	call
	done  chan struct{} // closed when reply is there
	reply any           // or an error
}

// convoys are the store's convoys, by node.
type convoys struct {
	mu     sync.Mutex
	to     map[string]*convoy // guarded by mu
	closed bool               // guarded by mu
	work   sync.WaitGroup     // flights together; added to under mu, while not closed
}

// begin runs a flight. One that begins after close is not waited for.
func (c *convoys) begin(flight func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go flight()
		return
	}
	c.work.Go(flight)
}

// close returns when the flights under way are over.
func (c *convoys) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// convoy returns that to the node which has the key.
func (s *Store) convoy(key string) *convoy {
	node := s.Group(key)
	s.convoys.mu.Lock()
	defer s.convoys.mu.Unlock()
	v := s.convoys.to[node]
	if v == nil {
		v = &convoy{store: s}
		if s.convoys.to == nil {
			s.convoys.to = make(map[string]*convoy)
		}
		s.convoys.to[node] = v
	}
	return v
}

// run sends a request, alone or with others, and returns its reply.
func (v *convoy) run(ctx context.Context, c call) (any, error) {
	v.mu.Lock()
	if v.flying < flights {
		v.flying++
		v.mu.Unlock()
		defer v.next()
		return v.store.runAlone(ctx, c)
	}
	t := &trip{ctx: ctx, call: c, done: make(chan struct{})}
	v.waiting = append(v.waiting, t)
	v.mu.Unlock()

	select {
	case <-t.done:
	case <-ctx.Done():
		if v.withdraw(t) {
			return nil, fmt.Errorf("%w: it had not been asked: %w", lock.ErrNotDone, classify(ctx.Err()))
		}
		return nil, classify(ctx.Err())
	}
	if err, failed := t.reply.(error); failed {
		return nil, err
	}
	return t.reply, nil
}

// withdraw takes back a trip that has not begun.
func (v *convoy) withdraw(t *trip) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.waiting, t)
	if i >= 0 {
		v.waiting = slices.Delete(v.waiting, i, i+1)
	}
	return i >= 0
}

// next gives a flight that has come back to those who wait.
func (v *convoy) next() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.waiting) == 0 {
		v.flying--
		return
	}
	together := v.waiting
	v.waiting = nil
	if len(together) > mostSeat {
		v.waiting = slices.Clone(together[mostSeat:])
		together = together[:mostSeat]
	}
	v.store.convoys.begin(func() { v.fly(together) })
}

// fly sends requests together. They go on as long as the most patient of them.
func (v *convoy) fly(together []*trip) {
	defer v.next()
	calls := make([]call, len(together))
	var by time.Time
	bounded := true
	for i, t := range together {
		calls[i] = t.call
		deadline, ok := t.ctx.Deadline()
		bounded = bounded && ok
		if deadline.After(by) {
			by = deadline
		}
	}
	ctx := context.WithoutCancel(together[0].ctx)
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	for i, reply := range v.store.runTogether(ctx, calls) {
		together[i].reply = reply
		close(together[i].done)
	}
}

// runTogether runs calls in one pipeline, and those of a script that serves many at
// once in one run of it. In a cluster a script may not touch keys of two slots.
func (s *Store) runTogether(ctx context.Context, calls []call) []any {
	if s.cluster != nil {
		return s.runEach(ctx, calls)
	}
	var runs []call
	members := make([][]int, 0, 2) // of each run, the indexes of its calls
	open := make(map[*script]int, 2)
	for i, c := range calls {
		run, ok := open[c.script]
		if !ok {
			run = len(runs)
			runs, members = append(runs, call{script: c.script}), append(members, nil)
			if c.script.many {
				open[c.script] = run
			}
		}
		runs[run].keys = append(runs[run].keys, c.keys...)
		runs[run].args = append(runs[run].args, c.args...)
		members[run] = append(members[run], i)
	}
	replies := make([]any, len(calls))
	for run, reply := range s.runAll(ctx, runs) {
		shareOut(replies, members[run], runs[run].script, reply)
	}
	return replies
}

// runEach runs calls in one pipeline, each by itself.
func (s *Store) runEach(ctx context.Context, calls []call) []any {
	replies := s.runAll(ctx, calls)
	for i, reply := range replies {
		shareOut(replies, []int{i}, calls[i].script, reply)
	}
	return replies
}

// shareOut notes the reply to a run as those to its calls.
func shareOut(replies []any, members []int, sc *script, reply any) {
	list, ok := reply.([]any)
	_, failed := reply.(error)
	for n, i := range members {
		switch {
		case failed || !sc.many:
			replies[i] = reply
		case !ok || len(list) != len(members):
			replies[i] = unexpected(reply)
		default:
			if err, failed := list[n].(error); failed {
				list[n] = classify(err)
			}
			replies[i] = list[n]
		}
	}
}
