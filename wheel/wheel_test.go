package wheel_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
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
	day    = 24 * time.Hour
)

// The tests of package wheel have these too.
var (
	check, require = wheel.Check, wheel.Require
	pass, start    = wheel.Pass, wheel.Start
	newRand        = wheel.NewRand
)

// bubble runs a test with a wheel in virtual time. A worker that outlived the
// test, or a goroutine that the wheel left, would fail it.
func bubble(t *testing.T, c wheel.Config, test func(t *testing.T, w *wheel.Wheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, c)) })
}

// each runs a test in virtual time for each of several named cases.
func each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// A form is a way to schedule a task d from now.
type form struct {
	schedule func(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error)
	again    bool          // the handle sets it again after it has run
	revives  bool          // and after a cancel
	over     timeout.State // after its task has run
}

// forms has them all by name. The periodic one runs once in a test: its period is the longest.
var forms = map[string]form{
	"Schedule":   {(*wheel.Wheel).Schedule, false, false, timeout.Expired},
	"ScheduleAt": {scheduleAt, false, false, timeout.Expired},
	"ScheduleFunc": {func(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error) {
		return w.ScheduleFunc(d, func(timeout.Timeout) { task() })
	}, true, false, timeout.Expired},
	"Arm": {func(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error) {
		timer := idle(w, task)
		_, err := timer.Arm(d)
		return timer.Timeout(), err
	}, true, true, timeout.Expired},
	"ArmAt": {func(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error) {
		timer := idle(w, task)
		_, err := timer.ArmAt(time.Now().Add(d))
		return timer.Timeout(), err
	}, true, true, timeout.Expired},
	"EveryFunc": {func(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error) {
		return w.EveryFunc(time.Now().Add(d), math.MaxInt64, wheel.Skip, func(timeout.Timeout) { task() })
	}, true, false, timeout.Pending},
}

// formNames are the names in an order that a seed repeats.
var formNames = slices.Sorted(maps.Keys(forms))

func scheduleAt(w *wheel.Wheel, d time.Duration, task func()) (timeout.Timeout, error) {
	return w.ScheduleAt(time.Now().Add(d), task)
}

// idle returns a timer of the wheel's that was never armed.
func idle(w *wheel.Wheel, task func()) *wheel.Timer {
	timer := new(wheel.Timer)
	timer.Init(w, task)
	return timer
}

// armed returns a timer of the wheel's that is due in d.
func armed(w *wheel.Wheel, d time.Duration, task func()) *wheel.Timer {
	timer := idle(w, task)
	must(timer.Arm(d))
	return timer
}

// none is the task of a timeout of which only the handle matters.
func none() {}

// must is for calls that cannot fail in the test.
func must[T any](v T, err error) T { return wheel.Must(v, err) }

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
	r.runs = append(r.runs, name+"@"+strconv.FormatFloat(float64(time.Since(r.start))/1e6, 'f', -1, 64))
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
	require(r.t, d >= 0, "%d ms after the start are over", after)
	pass(d)
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
	return must(w.Schedule(d, r.task(name)))
}
