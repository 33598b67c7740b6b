package pgstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// serverClock estimates the server's clock, by which the server checks the deadlines of
// requests. The estimate is never behind that clock at the reading, so no request in time is
// refused; it is ahead by less than the reading's round trip.
type serverClock struct{ reading atomic.Pointer[reading] }

// reading is one reading, which was made at an unknown instant of a round trip.
type reading struct {
	sent time.Time // by the monotonic clock
	took time.Duration
	at   time.Time // by the server's clock, or later
}

const (
	// freshReading is how long a reading is used unless a quicker one comes: by then a clock that
	// is wrong by 1 % is off by 0.3 s.
	freshReading = 30 * time.Second
	// readingLife is how long a reading is used at all, if no request is sent: by then a clock that is
	// slewed by 500 ppm is off by 0.45 s.
	readingLife = 15 * time.Minute
	// slowReading is the longest round trip of a reading that is used as it is. After a longer one
	// the clock is assumed to be behind by the excess.
	slowReading = 500 * time.Millisecond
	// readingError is by how much the server's clock may be behind its estimate: a slowReading, and
	// the drift within readingLife.
	readingError = time.Second
	// unboundedRequest is the deadline of a request whose context has none.
	unboundedRequest = 10 * time.Second
)

// renew takes a reply's clock, in µs, of a statement that was sent at an instant. wrong is set
// if the last reading has made a request late. It returns the reading, whether it is kept or not.
func (c *serverClock) renew(sent time.Time, micros int64, wrong bool) *reading {
	r := &reading{sent, time.Since(sent), time.UnixMicro(micros)}
	if excess := r.took - slowReading; excess > 0 {
		r.at = r.at.Add(-excess)
	}
	if last := c.reading.Load(); last == nil || wrong || r.took <= last.took || sent.Sub(last.sent) > freshReading {
		c.reading.Store(r)
	}
	return r
}

// window is when a request may be carried out, in µs of the server's clock. Before it, the clock was set
// back since the request was sent.
type window struct{ from, by int64 }

// has reports whether a request is in time. One without limits always is.
func (w *window) has(clock int64) bool { return w == nil || w.from <= clock && clock <= w.by }

// ranged is the window as an int8range; nil: no limits.
func (w *window) ranged() *string {
	if w == nil {
		return nil
	}
	text := fmt.Sprintf("[%d,%d]", w.from, w.by)
	return &text
}

// window returns when a request may be carried out that is sent now.
func (s *Store) window(ctx context.Context) (*window, error) {
	r := s.clock.reading.Load()
	if r == nil || time.Since(r.sent) > readingLife {
		var err error
		if r, err = s.readClock(ctx); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	by, bounded := ctx.Deadline()
	if !bounded {
		by = now.Add(unboundedRequest)
	}
	at := func(t time.Time) int64 { return r.at.Add(t.Sub(r.sent)).UnixMicro() + 1 }
	return &window{min(at(now.Add(-readingError)), at(by)), at(by)}, nil
}

// readClock reads the server's clock, and finds out whether the server is fit for requests.
func (s *Store) readClock(ctx context.Context) (*reading, error) {
	var micros int64
	var setting string // the one by which statements miss what has happened while they waited, or alter texts
	var readOnly bool
	var hex []byte // pgx reads no bytea in the format escape
	sent := time.Now()
	err := s.query(ctx, s.sql.clock, []any{[]*string{nil}}, func(rows pgx.Rows) error {
		err := rows.Scan(&micros, &setting, &readOnly, &hex)
		switch {
		case err != nil:
			return err
		case setting != "":
			return unfit(setting)
		case readOnly:
			return errReadOnly
		}
		return nil
	})
	if err != nil {
		return nil, notDone(err)
	}
	return s.clock.renew(sent, micros, false), nil
}
