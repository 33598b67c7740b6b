package pgstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// sweeper removes what has ended. The stores of a schema do it together: one of them in each
// minute, after a request, or as it is closed.
type sweeper struct {
	s     *Store
	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil unless a sweep is planned, which has not begun
	over  bool        // guarded by mu; no sweep begins any more
}

const (
	sweepEvery = time.Minute
	// lastSweep bounds a sweep in Close.
	lastSweep = time.Second
	// keptFor is how long a row outlives its end, so that one in use is not made anew each time.
	keptFor = time.Minute
	// sweepPage is how many names one statement looks at: it takes some ms.
	sweepPage = 1000
)

// plan has a sweep follow a request.
func (w *sweeper) plan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil && !w.over {
		w.s.work.Add(1)
		w.timer = time.AfterFunc(sweepEvery, w.run)
	}
}

func (w *sweeper) run() {
	defer w.s.work.Done()
	w.mu.Lock()
	w.timer = nil // a request from now on, which the sweep may miss, plans another
	w.mu.Unlock()
	w.sweep(sweepEvery / 2)
}

// sweep makes a sweep, which has so long.
func (w *sweeper) sweep(most time.Duration) {
	ctx, cancel := context.WithTimeout(w.s.ending, most)
	defer cancel()
	left := false
	err := protect(func() (err error) {
		left, err = w.s.sweep(ctx, sweepEvery, keptFor)
		return err
	})
	if err != nil && w.s.ending.Err() == nil {
		w.s.config.Logger.Warn("pgstore: what has ended was not removed", "error", err)
	}
	if left || err != nil {
		w.plan()
	}
}

// stop returns when no sweep is planned, and none begins any more. It makes the one that is planned: programs
// that live for less than sweepEvery make no other.
func (w *sweeper) stop() {
	w.mu.Lock()
	planned := w.timer != nil && w.timer.Stop()
	w.over, w.timer = true, nil
	w.mu.Unlock()
	if planned {
		w.sweep(lastSweep)
		w.s.work.Done()
	}
}

// sweep removes names that have ended, records of clients, and subscriptions of dead stores,
// unless another store has done so within the last time every. It reports whether rows are left.
func (s *Store) sweep(ctx context.Context, every, kept time.Duration) (left bool, err error) {
	now := int64(0)
	if err = s.query(ctx, s.sql.claim, []any{every.Milliseconds()}, func(rows pgx.Rows) error { return rows.Scan(&now) }); err != nil || now == 0 {
		return err == nil, err
	}
	for dead := sweepPage; dead == sweepPage && err == nil; { // the server has no room for any number of advisory locks
		err = s.query(ctx, s.sql.forget, []any{sweepPage}, func(rows pgx.Rows) error { return rows.Scan(&dead) })
	}
	for after := ""; ; { // last, as there may be no time for millions of names
		var last *string
		var stay int64
		args := []any{after, now - kept.Milliseconds(), sweepPage}
		if failed := s.query(ctx, s.sql.sweep, args, func(rows pgx.Rows) error { return rows.Scan(&last, &stay) }); failed != nil {
			return true, errors.Join(err, failed)
		}
		if left = left || stay > 0; last == nil {
			return left, err
		}
		after = *last
	}
}
