package wheel_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// bubble runs a test with a wheel in virtual time. A worker that outlived the
// test, or a goroutine that the wheel left, would fail it.
func bubble(t *testing.T, c wheel.Config, test func(t *testing.T, w *wheel.Wheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, c)) })
}

// start makes a wheel that is stopped when the test ends, and whose numbers
// have to add up then. It is silent unless the test brings a logger.
func start(t testing.TB, c wheel.Config) *wheel.Wheel {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	w, err := wheel.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Stop()
		s := w.Stats()
		if s.Pending != 0 || s.Scheduled != s.Fired+s.Cancelled {
			t.Errorf("after Stop the numbers do not add up: %+v", s)
		}
	})
	return w
}

// must is for calls that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newRand returns random numbers whose seed is in the log of a failed test.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return randOf(seed, 0)
}

// randOf returns the random numbers of one of several goroutines.
func randOf(seed, goroutine uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, goroutine)) }

// A record lists runs with their times, in milliseconds since it was made: "a@200 b@210".
type record struct {
	t     testing.TB
	start time.Time

	mu   sync.Mutex
	runs []string
}

func newRecord(t testing.TB) *record { return &record{t: t, start: time.Now()} }

// task returns a task that records its runs under a name.
func (r *record) task(name string) func() { return func() { r.run(name) } }

func (r *record) run(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, fmt.Sprintf("%s@%d", name, time.Since(r.start).Milliseconds()))
}

// take returns the runs since the last call.
func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

// at lets virtual time pass until so many milliseconds after the start, and until
// everything that is due then has ended.
func (r *record) at(after int) {
	r.t.Helper()
	d := time.Until(r.start.Add(time.Duration(after) * ms))
	if d < 0 {
		r.t.Fatalf("%d ms after the start are over", after)
	}
	time.Sleep(d)
	synctest.Wait()
}

// want compares the runs since the last call. Those that are joined by a plus
// may come in any order, "a@5+b@5 c@6", as those of one tick may.
func (r *record) want(want string) {
	r.t.Helper()
	runs := r.take()
	for i, group := range strings.Fields(want) {
		names := strings.Split(group, "+")
		if i+len(names) > len(runs) {
			break
		}
		slices.Sort(names)
		slices.Sort(runs[i : i+len(names)])
		joined := strings.Join(runs[i:i+len(names)], "+")
		if joined != strings.Join(names, "+") {
			break
		}
		runs = slices.Replace(runs, i, i+len(names), group)
	}
	if got := strings.Join(runs, " "); got != want {
		r.t.Errorf("ran %q, want %q", got, want)
	}
}

// schedule schedules a task that is recorded under a name.
func (r *record) schedule(w *wheel.Wheel, d time.Duration, name string) timeout.Timeout {
	r.t.Helper()
	t, err := w.Schedule(d, r.task(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}
