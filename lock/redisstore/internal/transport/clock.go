package transport

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// serverClock estimates the clock of one node. A request carries its deadline by that
// clock, and its script does nothing after the deadline.
//
// The estimate errs to one side. It is never behind the node's clock at the time of the
// reading, so a request in time is not refused by mistake. It is ahead by less than the
// reading's round trip.
type serverClock struct {
	reading atomic.Pointer[Reading] // the latest; nil if it proved wrong
	queries queries[*Reading]
}

// Reading is one reading of a node's clock, which was made at an unknown instant of the round
// trip.
type Reading struct {
	Sent time.Time // by the monotonic clock
	Took time.Duration
	At   time.Time // by the node's clock, or later
}

const (
	// freshReading is how long a reading is used as it is: by then a clock that is wrong
	// by 1 % is off by 0.3 s. An older reading is renewed along with the next request, in its
	// pipeline: a program that asks rarely makes no more round trips for that.
	freshReading = 30 * time.Second
	// readingLife is how long a reading is used at all: by then a clock that is slewed by
	// 500 ppm is off by 0.45 s.
	readingLife = 15 * time.Minute
	// slowReading is the longest round trip of a reading that is used as it is. After a
	// longer one the node's clock is assumed to be behind by the excess. A request that
	// is found late by mistake then causes a new reading.
	slowReading = 500 * time.Millisecond
	// readingError is by how much a node's clock may be ahead of its estimate: a
	// slowReading, and the clock's drift within readingLife.
	readingError = time.Second
)

// query returns a new reading for a request to the node, with the context and a key of that.
func (c *serverClock) query(ctx context.Context, n *nodes, key string) (*Reading, error) {
	for {
		q, own := c.queries.ask(ctx, n, func(ctx context.Context) (*Reading, error) { return c.read(ctx, n, key) })
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, notSentError{fault.Classify(ctx.Err())}
		}
		switch {
		case q.err == nil:
			if by, ok := ctx.Deadline(); ok && time.Until(by) < q.result.Took && q.result.Took > slowReading {
				return nil, notSentError{fmt.Errorf("%w: the request would not be answered in time: a round trip took %v",
					driver.ErrUnavailable, q.result.Took.Round(time.Millisecond))}
			}
			return q.result, nil
		case own || fault.Silent(q.err):
			return nil, notSentError{q.err}
		}
		// The server may have refused only the key of the request that made the query.
	}
}

// read queries the node.
func (c *serverClock) read(ctx context.Context, n *nodes, key string) (*Reading, error) {
	asked := time.Now()
	cmd := newClockCall(key).command(ctx, nil, true)
	if err := n.client.Process(ctx, cmd); err != nil {
		err = fault.Classify(err)
		n.Doubt(err)
		return nil, err
	}
	r, err := newReading(asked, cmd.Val())
	if err == nil {
		c.reading.Store(r)
	}
	return r, err
}

var readClock = File("read_clock.lua")

// newClockCall returns the call that reads the clock of the node which has the key.
func newClockCall(key string) *Call { return &Call{Script: readClock, Keys: []any{key}} }

// newReading parses the reply of a node that was queried at asked, or later.
func newReading(asked time.Time, reply any) (*Reading, error) {
	text, _ := reply.(string)
	micros, _ := strconv.ParseInt(text, 10, 64) // out of bounds with an error, too
	if micros <= 0 || micros > lua.MaxNumber {
		return nil, fault.Unexpected(reply)
	}
	r := &Reading{Sent: asked, Took: time.Since(asked), At: time.UnixMicro(micros)}
	if excess := r.Took - slowReading; excess > 0 {
		r.At = r.At.Add(-excess)
	}
	return r, nil
}

// renew replaces the reading r by the reply of a node that was queried at asked, or
// later, unless r was replaced already.
func (c *serverClock) renew(r *Reading, asked time.Time, reply any) {
	if renewed, err := newReading(asked, reply); err == nil {
		c.reading.CompareAndSwap(r, renewed)
	}
}

// forget discards the reading r, by which a request was late, so that the node is queried
// again.
func (c *serverClock) forget(r *Reading) { c.reading.CompareAndSwap(r, nil) }
