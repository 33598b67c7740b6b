package transport

import (
	"context"
	"fmt"
	"strconv"
	"sync"
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

	mu    sync.Mutex
	query *clockQuery // guarded by mu; the one in flight, or nil
}

// clockQuery is a query for a node's clock. Its result is set when done is closed.
type clockQuery struct {
	done    chan struct{}
	reading *Reading
	err     error
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
	// by 1 % is off by 0.3 s. An older reading is renewed along with the next request.
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
	// unboundedRequest is the deadline of a request whose context has none.
	unboundedRequest = 10 * time.Second
)

// read queries the node, on behalf of a request to it.
//
// The query outlives a request whose context ends meanwhile. Otherwise a request with
// little time, on a connection that has yet to be made, would fail each time and close
// the connection.
func (c *serverClock) read(t *Transport, r *request) (*Reading, error) {
	ctx := r.ctx
	for {
		q, own := c.ask(ctx, t, r.key())
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, notSentError{fault.Classify(ctx.Err())}
		}
		switch {
		case q.err == nil:
			if by, ok := ctx.Deadline(); ok && time.Until(by) < q.reading.Took && q.reading.Took > slowReading {
				return nil, notSentError{fmt.Errorf("%w: the request would not be answered in time: a round trip took %v",
					driver.ErrUnavailable, q.reading.Took.Round(time.Millisecond))}
			}
			return q.reading, nil
		case own || fault.Silent(q.err):
			return nil, notSentError{q.err}
		}
		// The server may have refused only the key of the request that made the query.
	}
}

// leastQuery is the shortest timeout of a query.
const leastQuery = time.Second

// ask returns the query in flight, or a new one, for which own is true.
func (c *serverClock) ask(ctx context.Context, t *Transport, key string) (q *clockQuery, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.query != nil {
		return c.query, false
	}
	q = &clockQuery{done: make(chan struct{})}
	c.query = q
	ctx, cancel := outliving(ctx)
	t.Go(func() {
		defer cancel()
		c.answer(ctx, t, key, q)
	})
	return q, true
}

// outliving returns the context of a query on which further requests wait: it lasts for
// leastQuery at least, and does not end when ctx is cancelled.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	by := time.Now().Add(leastQuery)
	if deadline, ok := ctx.Deadline(); !ok {
		by = time.Now().Add(unboundedRequest)
	} else if deadline.After(by) {
		by = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), by)
}

// answer queries the node, and sets the query's result.
func (c *serverClock) answer(ctx context.Context, t *Transport, key string, q *clockQuery) {
	asked := time.Now()
	cmd := newClockCall(key).command(ctx, nil, true)
	err := t.client.Process(ctx, cmd)
	if err == nil {
		q.reading, err = newReading(asked, cmd.Val())
	} else {
		err = fault.Classify(err)
		t.Doubt(err)
	}
	if q.err = err; err == nil {
		c.reading.Store(q.reading)
	}
	c.mu.Lock()
	c.query = nil
	c.mu.Unlock()
	close(q.done)
}

// newClockCall returns the call that reads the clock of the node which has the key.
func newClockCall(key string) *Call { return &Call{Script: readClock, Keys: []any{key}} }

// newReading parses the reply of a node that was queried at asked, or later.
func newReading(asked time.Time, reply any) (*Reading, error) {
	text, _ := reply.(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > lua.MaxNumber {
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

// LastReading returns the last reading of a node's clock. It keeps this one if there was none.
// ok is false for a reading that took too long to compare.
func (t *Transport) LastReading(node string, now Reading) (last Reading, ok bool) {
	if t.cluster == nil {
		node = ""
	}
	clock := &t.nodeAt(node).clock
	r := clock.reading.Load()
	if r == nil {
		clock.reading.CompareAndSwap(nil, &now)
		return last, false
	}
	return *r, r.Took <= slowReading
}
