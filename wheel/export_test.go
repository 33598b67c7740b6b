package wheel

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of package wheel_test share these functions with those of this package.
var (
	Check   = check
	Require = require
	Pass    = pass
	Start   = start
	NewRand = newRand
)

const (
	ms     = time.Millisecond
	second = time.Second
	day    = 24 * time.Hour
)

// Must is for calls that cannot fail in the test.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// InOrder schedules tasks of one deadline that run in the order of the calls, and whose memory
// serves later ones. The shard of Schedule changes when the goroutine's stack moves.
func InOrder(w *Wheel, d time.Duration, task func()) Timeout {
	return Must(w.shards[0].put(w.ticks.after(d), task))
}

// Log returns where the wheel's warnings go.
func (w *Wheel) Log() *slog.Logger { return w.warnings.log }

// Gone reports whether the worker has ended.
func (w *Wheel) Gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// newRand returns random numbers whose seed is in the log of a failed test.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// check fails the test, which goes on, unless ok is true.
func check(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// require ends the test unless ok is true.
func require(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// pass lets virtual time pass, and waits until everything that is due then has ended.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start makes a wheel that is stopped when the test ends, and whose numbers
// have to add up then. It is silent unless the test brings a logger.
func start(t testing.TB, c Config) *Wheel {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	w, err := New(c)
	require(t, err == nil, "New: %v", err)
	t.Cleanup(func() {
		w.Stop()
		s := w.Stats()
		check(t, s.Pending == 0 && s.Scheduled == s.Fired+s.Cancelled, "after Stop the numbers do not add up: %+v", s)
	})
	return w
}
