package wheel_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// count returns how many lines contain a part.
func (l *lines) count(part string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// The text of each kind of warning.
const (
	saysPanic    = "a task panicked"
	saysExit     = "runtime.Goexit"
	saysRejected = "executor refused"
	saysOverrun  = "held the worker"
	saysBacklog  = "falls behind"
)

// watched runs a test in virtual time on a wheel whose log is watched.
func watched(t *testing.T, c wheel.Config, test func(t *testing.T, w *wheel.Wheel, log *lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c.Logger = log.logger()
		test(t, start(t, c), &log)
	})
}

// A healthy wheel is silent.
func TestNothingToWarnOf(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		for i := range 1000 {
			must(w.Schedule(time.Duration(i%50)*ms, func() {}))
		}
		must(w.Every(10*ms, wheel.Skip, func() { time.Sleep(ms) })) // just a tick
		time.Sleep(time.Minute)
		w.Stop()
		if got := log.String(); got != "" {
			t.Errorf("the log says:\n%s", got)
		}
	})
}

// A task that blocks is reported, with its duration.
func TestOverrunIsWarnedOf(t *testing.T) {
	watched(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		must(w.Schedule(10*ms, func() { time.Sleep(10*ms + 1) }))
		time.Sleep(50 * ms)
		synctest.Wait()
		if n := log.count(saysOverrun); n != 1 || !strings.Contains(log.String(), "held=10.000001ms") {
			t.Errorf("the log says:\n%s", log)
		}
		if n := log.count(saysBacklog); n != 0 {
			t.Errorf("nothing was late; the log says:\n%s", log)
		}
		if s := w.Stats(); s.Overruns != 1 {
			t.Errorf("%d overruns were counted, want 1", s.Overruns)
		}
	})
}

// A worker that is more than ten ticks late is reported, with the number of pending
// tasks.
func TestBacklogIsWarnedOf(t *testing.T) {
	watched(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		block := func(d time.Duration) {
			must(w.Schedule(10*ms, func() { time.Sleep(d) }))
			must(w.Schedule(20*ms, func() {}))
			must(w.Schedule(time.Hour, func() {}))
			time.Sleep(second)
			synctest.Wait()
		}
		block(110 * ms) // the second is 100 ms late
		if n := log.count(saysBacklog); n != 0 {
			t.Errorf("ten ticks are no backlog; the log says:\n%s", log)
		}
		block(110*ms + 1)
		if n := log.count(saysBacklog); n != 1 || !strings.Contains(log.String(), "lag=100.000001ms") {
			t.Errorf("the log says:\n%s", log)
		}
	})
}

func TestGoexitIsWarnedOf(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		must(w.Schedule(ms, func() { t.SkipNow() }))
		time.Sleep(2 * ms)
		synctest.Wait()
		if log.count(saysExit) != 1 || log.count(saysPanic) != 0 {
			t.Errorf("the log says:\n%s", log)
		}
	})
}

// Each kind is logged once a minute, with how often it was suppressed.
func TestWarningsAreSaidOnceAMinute(t *testing.T) {
	refuse := executor(func(task func()) error {
		task()
		return errors.New("no room")
	})
	for says, c := range map[string]struct {
		config wheel.Config
		task   func()
	}{
		saysPanic:    {wheel.Config{}, func() { panic("bug") }},
		saysOverrun:  {wheel.Config{}, func() { time.Sleep(11 * ms) }},
		saysRejected: {wheel.Config{Executor: refuse}, func() {}},
	} {
		t.Run(says, func(t *testing.T) {
			watched(t, c.config, func(t *testing.T, w *wheel.Wheel, log *lines) {
				must(w.Every(second, wheel.CatchUp, c.task)) // the first after a second
				time.Sleep(second + 59*second + 500*ms)
				synctest.Wait()
				if n := log.count(says); n != 1 || log.count("suppressed=") != 0 {
					t.Fatalf("%d times in the first minute; the log says:\n%s", n, log)
				}
				time.Sleep(second)
				synctest.Wait()
				if n := log.count(says); n != 2 || log.count("suppressed=59") != 1 {
					t.Fatalf("%d times after a minute; the log says:\n%s", n, log)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := log.count(says); n != 12 || log.count("suppressed=59") != 11 {
					t.Fatalf("%d times in eleven minutes; the log says:\n%s", n, log)
				}
			})
		})
	}
}

// One kind does not suppress another, one wheel not another.
func TestWarningsAreIndependent(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		must(w.Schedule(ms, func() { panic("bug") }))
		must(w.Schedule(10*ms, func() { time.Sleep(5 * ms) }))
		other := start(t, wheel.Config{Tick: ms, Logger: log.logger()})
		must(other.Schedule(20*ms, func() { panic("another bug") }))
		time.Sleep(second)
		synctest.Wait()
		if log.count(saysPanic) != 2 || log.count(saysOverrun) != 1 {
			t.Errorf("the log says:\n%s", log)
		}
	})
}

// A logger that calls the wheel does not stop it.
func TestLoggerThatCallsTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *wheel.Wheel
		told := make(chan wheel.Stats, 10)
		w = start(t, wheel.Config{Tick: ms, Logger: slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			told <- w.Stats()
			must(w.Schedule(ms, func() {})).Cancel()
			w.Drain()
			return len(p), nil
		}), nil))})
		must(w.Schedule(ms, func() { panic("bug") }))
		time.Sleep(5 * ms)
		synctest.Wait()
		if s := <-told; s.Panics != 1 {
			t.Errorf("the log was told of %+v", s)
		}
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
