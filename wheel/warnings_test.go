package wheel_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
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

// says checks in how many lines a part is.
func (l *lines) says(t *testing.T, part string, want int) {
	t.Helper()
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	require(t, n == want, "the log says %q %d times, want %d:\n%s", part, n, want, l)
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
			must(w.Schedule(time.Duration(i%50)*ms, none))
		}
		must(w.Every(10*ms, wheel.Skip, func() { time.Sleep(ms) })) // just a tick
		time.Sleep(time.Minute)
		w.Stop()
		log.says(t, "", 0)
	})
}

// bad is a log whose handler has a bug.
type bad struct{ slog.Handler }

func (bad) Enabled(context.Context, slog.Level) bool { return true }

func (bad) Handle(context.Context, slog.Record) error { panic("a bug in the log") }

// A panic in the log ends neither the process nor the wheel.
func TestPanicInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, wheel.Config{Tick: ms, Logger: slog.New(bad{slog.DiscardHandler})})
		ran := false
		must(w.Schedule(ms, func() { panic("a bug") }))
		must(w.Schedule(2*ms, func() { ran = true }))
		time.Sleep(3 * ms)
		synctest.Wait()
		require(t, ran, "the next task does not run")
	})
}

func TestGoexitIsWarnedOf(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		must(w.Schedule(ms, runtime.Goexit))
		pass(2 * ms)
		log.says(t, saysExit, 1)
		log.says(t, saysPanic, 0)
	})
}

// Each kind is logged once a minute, with how often it was suppressed.
func TestWarningsAreLoggedOnceAMinute(t *testing.T) {
	refuse := executor(func(func()) error { return errors.New("no room") })
	for part, c := range map[string]struct {
		config wheel.Config
		task   func()
	}{
		saysPanic:    {wheel.Config{}, func() { panic("bug") }},
		saysOverrun:  {wheel.Config{}, func() { time.Sleep(11 * ms) }},
		saysRejected: {wheel.Config{Executor: refuse}, func() {}},
	} {
		t.Run(part, func(t *testing.T) {
			watched(t, c.config, func(t *testing.T, w *wheel.Wheel, log *lines) {
				must(w.Every(second, wheel.CatchUp, c.task)) // the first after a second
				pass(second + 59*second + 500*ms)
				log.says(t, part, 1)
				log.says(t, "suppressed=", 0)
				pass(second)
				log.says(t, part, 2)
				log.says(t, "suppressed=59", 1)
				pass(10 * time.Minute)
				log.says(t, part, 12)
				log.says(t, "suppressed=59", 11)
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
		pass(second)
		log.says(t, saysPanic, 2)
		log.says(t, saysOverrun, 1)
	})
}

// A logger that calls the wheel does not stop it.
func TestLoggerThatCallsTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *wheel.Wheel
		told := make(chan wheel.Stats, 10)
		w = start(t, wheel.Config{Tick: ms, Logger: slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			told <- w.Stats()
			must(w.Schedule(ms, none)).Cancel()
			w.Drain()
			return len(p), nil
		}), nil))})
		must(w.Schedule(ms, func() { panic("bug") }))
		pass(5 * ms)
		s := <-told
		check(t, s.Panics == 1, "the log was told of %+v", s)
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A log that blocks delays no task: the worker does not wait for it.
func TestBlockedLoggerDelaysNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		w := start(t, wheel.Config{Tick: ms, Logger: slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			<-block
			return len(p), nil
		}), nil))})
		r := newRecord(t)
		must(w.Schedule(ms, func() { panic("bug") }))
		r.schedule(w, 10*ms, "t")
		r.at(100)
		close(block)
		r.want("t@10")
	})
}
