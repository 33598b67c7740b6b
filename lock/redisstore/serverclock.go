package redisstore

import (
	"context"
	"fmt"
	"math"
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
	reading atomic.Pointer[clockReading] // the latest; nil if it proved wrong

	mu    sync.Mutex
	query *clockQuery // guarded by mu; the one in flight, or nil
}

// clockQuery is a query for a node's clock. Its result is set when done is closed.
type clockQuery struct {
	done    chan struct{}
	reading *clockReading
	err     error
}

// clockReading is the time of the node's clock when it was asked, or later.
type clockReading struct {
	asked  time.Time
	micros int64 // since 1970
	took   time.Duration
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

// clock returns the serverClock of the node that has the key.
func (t *transport) clock(at key) *serverClock { return t.clockOf(t.nodes.of(at)) }

// clockOf returns the serverClock of a node.
func (t *transport) clockOf(node string) *serverClock {
	if c, ok := t.clocks.Load(node); ok {
		return c.(*serverClock)
	}
	c, _ := t.clocks.LoadOrStore(node, new(serverClock))
	return c.(*serverClock)
}

// read returns a reading. It queries the node that has the key if the latest is too old.
//
// The query outlives a request whose context ends meanwhile. Otherwise a request with
// little time, on a connection that has yet to be made, would fail each time and close
// the connection.
func (c *serverClock) read(ctx context.Context, t *transport, at key) (*clockReading, error) {
	if r := c.reading.Load(); r != nil && time.Since(r.asked) < readingLife {
		return r, nil
	}
	for {
		q, own := c.ask(ctx, t, at)
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, notSentError{fault.Classify(ctx.Err())}
		}
		switch {
		case q.err == nil:
			if by, ok := ctx.Deadline(); ok && time.Until(by) < q.reading.took && q.reading.took > slowReading {
				return nil, notSentError{fmt.Errorf("%w: the request would not be answered in time: a round trip took %v",
					driver.ErrUnavailable, q.reading.took.Round(time.Millisecond))}
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
func (c *serverClock) ask(ctx context.Context, t *transport, at key) (q *clockQuery, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.query != nil {
		return c.query, false
	}
	q = &clockQuery{done: make(chan struct{})}
	c.query = q
	ctx, cancel := outliving(ctx)
	t.background.begin(func() {
		defer cancel()
		c.answer(ctx, t, at, q)
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
func (c *serverClock) answer(ctx context.Context, t *transport, at key, q *clockQuery) {
	asked := time.Now()
	cmd := newClockCall(at).command(ctx, deadline{}, true)
	err := t.client.Process(ctx, cmd)
	if err == nil {
		q.reading, err = newReading(asked, cmd.Val())
	} else {
		err = fault.Classify(err)
		t.nodes.doubt(err)
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
func newClockCall(at key) *call { return &call{script: readClock, keys: []any{string(at)}} }

// newReading parses the reply of a node that was queried at asked, or later.
func newReading(asked time.Time, reply any) (*clockReading, error) {
	text, _ := reply.(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > lua.MaxNumber {
		return nil, fault.Unexpected(reply)
	}
	r := &clockReading{asked: asked, micros: micros, took: time.Since(asked)}
	if excess := r.took - slowReading; excess > 0 {
		r.micros -= excess.Microseconds()
	}
	return r, nil
}

// fresh reports whether the reading does not need renewal yet.
func (r *clockReading) fresh() bool { return time.Since(r.asked) < freshReading }

// renew replaces the reading r by the reply of a node that was queried at asked, or
// later, unless r was replaced already.
func (c *serverClock) renew(r *clockReading, asked time.Time, reply any) {
	if renewed, err := newReading(asked, reply); err == nil {
		c.reading.CompareAndSwap(r, renewed)
	}
}

// forget discards the reading r, by which a request was late, so that the node is queried
// again.
func (c *serverClock) forget(r *clockReading) { c.reading.CompareAndSwap(r, nil) }

// deadline is the deadline of a request in decimal, as deadline.lua takes it.
type deadline struct {
	by   string // µs since 1970 by the node's clock
	most string // for how many µs from its sending it may lie ahead, by any clock
}

// deadline returns the deadline of ctx by the node's clock.
func (r *clockReading) deadline(ctx context.Context) deadline {
	now := time.Now()
	by, bounded := ctx.Deadline()
	if !bounded {
		by = now.Add(unboundedRequest)
	}
	return deadline{
		by:   strconv.FormatInt(min(r.micros+ceilMicros(by.Sub(r.asked)), lua.MaxNumber), 10),
		most: strconv.FormatInt(min(ceilMicros(max(by.Sub(now), 0)+readingError), lua.MaxNumber), 10),
	}
}

func ceilMicros(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Microsecond)))
}
