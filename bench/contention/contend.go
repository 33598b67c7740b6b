//go:build unix

package contention

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/bench/hostclock"
)

// contenders are the contenders of one process for one lock.
type contenders struct {
	Name  string        `json:"name"`
	First int64         `json:"first"` // number of the first, from 1
	Count int           `json:"count"`
	Hold  time.Duration `json:"hold"`
}

// share has the figures of one process.
type share struct {
	Grants    []int64       `json:"grants"` // of each contender
	HandOvers int64         `json:"hand_overs"`
	Latency   *Latencies    `json:"latency"` // of a hand-over
	Wait      *Latencies    `json:"wait"`    // for a grant
	Longest   time.Duration `json:"longest"` // wait, whether granted or not
	Pair      *Latencies    `json:"pair"`    // of an acquisition with its release
	CPU       time.Duration `json:"cpu"`     // of a process with pairs
}

func newShare() *share {
	return &share{Latency: NewLatencies(), Wait: NewLatencies(), Pair: NewLatencies()}
}

func (s *share) add(other *share) {
	s.Grants = append(s.Grants, other.Grants...)
	s.HandOvers += other.HandOvers
	s.Latency.Merge(other.Latency)
	s.Wait.Merge(other.Wait)
	s.Longest = max(s.Longest, other.Longest)
	s.Pair.Merge(other.Pair)
	s.CPU += other.CPU
}

// contend contends until ctx ends, and returns the figures of the measuring phase.
func (c contenders) contend(ctx context.Context, board *Board, locks Locks) (*share, error) {
	group, running := errgroup.WithContext(ctx)
	var mu sync.Mutex
	all := newShare()
	for i := range c.Count {
		group.Go(func() error {
			one := contender{contenders: c, number: c.First + int64(i), board: board, locks: locks, seen: newShare()}
			err := one.run(running)
			mu.Lock()
			defer mu.Unlock()
			one.seen.Grants = []int64{one.granted}
			all.add(one.seen)
			return err
		})
	}
	err := group.Wait()
	return all, err
}

// contender is one of them.
type contender struct {
	contenders
	number  int64
	board   *Board
	locks   Locks
	seen    *share
	granted int64
}

func (c *contender) run(ctx context.Context) error {
	for ctx.Err() == nil {
		asked := c.board.clock.Now()
		release, err := c.locks.Acquire(ctx, c.Name)
		if err != nil {
			c.seen.Longest = max(c.seen.Longest, c.board.unended(asked))
			return unlessOver(ctx, err)
		}
		c.note(asked, c.board.enter(c.number))
		hold(c.Hold)
		c.board.leave(c.number)
		if err := release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// note records a grant.
func (c *contender) note(asked hostclock.Instant, g change) {
	if c.board.phase() != measuring {
		c.seen.Longest = max(c.seen.Longest, c.board.unended(asked))
		return
	}
	c.granted++
	wait := g.granted.Since(asked)
	c.seen.Wait.Add(wait)
	c.seen.Longest = max(c.seen.Longest, wait)
	if g.handed {
		c.seen.HandOvers++
		c.seen.Latency.Add(g.granted.Since(g.released))
	}
}
