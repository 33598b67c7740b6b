//go:build real

package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
)

// witness records when a lease is lost, and when the process was stalled until then.
type witness struct {
	lease    *lock.Lease
	lostAt   chan time.Time
	stalls   [][2]time.Time
	measured chan struct{} // closed when stalls are complete
}

func watch(lease *lock.Lease) *witness {
	w := &witness{lease: lease, lostAt: make(chan time.Time, 1), measured: make(chan struct{})}
	for range 3 { // the first one counts: another one may be stalled
		go func() {
			<-lease.Context().Done()
			now := time.Now()
			select {
			case w.lostAt <- now:
			default:
			}
		}()
	}
	go w.measure()
	return w
}

// measure finds the stalls of the process until the lease has ended.
func (w *witness) measure() {
	defer close(w.measured)
	const pause, stall = 2 * time.Millisecond, 10 * time.Millisecond
	before := time.Now()
	for ended := false; !ended; {
		ended = w.lease.Context().Err() != nil
		time.Sleep(pause)
		now := time.Now()
		if now.Sub(before) > stall {
			w.stalls = append(w.stalls, [2]time.Time{before, now})
		}
		before = now
	}
}

// stalled returns for how long the process was stalled between two instants.
func (w *witness) stalled(from, to time.Time) (sum time.Duration) {
	<-w.measured
	for _, s := range w.stalls {
		begin, end := s[0], s[1]
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(end.Sub(begin), 0)
	}
	return sum
}

// lossIsInTime fails t unless the lease was lost by until, within the documented
// tolerance. A stall of the process is excused. It returns when and why the lease was lost.
func (w *witness) lossIsInTime(t testing.TB, within time.Duration) (lostAt time.Time, loss *lock.LostError) {
	t.Helper()
	select {
	case lostAt = <-w.lostAt:
	case <-time.After(within):
		t.Fatalf("no notice of the loss within %v", within)
	}
	until := w.lease.Until()
	if late := lostAt.Sub(until) - w.stalled(until, lostAt); late > 10*time.Millisecond+50*time.Millisecond+patience {
		t.Errorf("notified of the loss %v after until", late)
	}
	require.ErrorAs(t, w.lease.Err(), &loss)
	return lostAt, loss
}

// patience is the delay of a busy machine that tests allow for.
const patience = 100 * time.Millisecond
