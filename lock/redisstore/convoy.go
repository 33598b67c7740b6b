package redisstore

import (
	"context"
	"fmt"
	"runtime"
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
		return v.store.runAlone(ctx, &c)
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
	if together := v.board(); together != nil {
		v.store.convoys.begin(func() { v.fly(together) })
	}
}

// board returns those who leave on the flight that has come back, and ends it if
// nobody waits.
func (v *convoy) board() []*trip {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.waiting) == 0 {
		v.flying--
		return nil
	}
	together := v.waiting
	v.waiting = nil
	if len(together) > mostSeat {
		v.waiting = slices.Clone(together[mostSeat:])
		together = together[:mostSeat]
	}
	return together
}

// fly sends requests together, then those who wait by then, and so on.
func (v *convoy) fly(together []*trip) {
	for together != nil {
		v.send(together)
		runtime.Gosched() // those who were served often ask again at once
		together = v.board()
	}
}

// send sends requests together. They go on as long as the most patient of them.
func (v *convoy) send(together []*trip) {
	var by time.Time
	bounded := true
	for _, t := range together {
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
	v.store.runTogether(ctx, together)
}

// runTogether runs calls in one pipeline, and those of a script that serves many in
// one run of it.
func (s *Store) runTogether(ctx context.Context, together []*trip) {
	runs, members := s.runsOf(together)
	for i, reply := range s.runRuns(ctx, runs) {
		shareOut(members[i], reply)
	}
}

// runsOf returns the runs of scripts that calls need, and whose calls each run makes.
// In a cluster a script may not touch keys of two slots, so each call has its own.
func (s *Store) runsOf(together []*trip) (runs [][]*call, members [][]*trip) {
next:
	for _, t := range together {
		if t.script.many && s.cluster == nil {
			for i := range runs {
				if runs[i][0].script == t.script {
					runs[i], members[i] = append(runs[i], &t.call), append(members[i], t)
					continue next
				}
			}
		}
		room := 1
		if t.script.many && s.cluster == nil {
			room = len(together)
		}
		runs = append(runs, append(make([]*call, 0, room), &t.call))
		members = append(members, append(make([]*trip, 0, room), t))
	}
	return runs, members
}

// shareOut hands the reply to a run to those who are waiting for it.
func shareOut(members []*trip, reply any) {
	list, ok := reply.([]any)
	_, failed := reply.(error)
	many := members[0].script.many
	if many && !failed && (!ok || len(list) != len(members)) {
		reply, failed = unexpected(reply), true
	}
	for i, t := range members {
		t.reply = reply
		if many && !failed {
			t.reply = list[i]
			if err, failed := t.reply.(error); failed {
				t.reply = classify(err)
			}
		}
		close(t.done)
	}
}
