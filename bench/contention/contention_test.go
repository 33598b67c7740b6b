//go:build unix

package contention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// actAsContenders, set in the environment, makes the test binary a process of contenders.
const actAsContenders = "CONTENTION_TEST_ACT_AS_CONTENDERS"

func TestMain(m *testing.M) {
	if os.Getenv(actAsContenders) != "" {
		if err := Serve(os.Stdin, os.Stdout, openSpec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Run(m)
}

// openSpec opens a test's locks in another process.
func openSpec(_ context.Context, spec string) (Locks, error) {
	kind, path, _ := strings.Cut(spec, " ")
	switch kind {
	case "file":
		return fileLocks{path}, nil
	case "broken":
		return brokenLocks{}, nil
	case "once":
		return onceLocks{path}, nil
	case "crash":
		os.Exit(3)
	}
	return nil, errors.New("no locks are called " + spec)
}

func inProcesses(spec string) Way {
	return Way{
		Open: func(ctx context.Context) (Locks, error) { return openSpec(ctx, spec) },
		Command: func() *exec.Cmd {
			program, err := os.Executable()
			if err != nil {
				panic(err)
			}
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), actAsContenders+"=1", "GORACE=atexit_sleep_ms=0")
			return cmd
		},
		Spec: spec,
	}
}

// fileLocks lock a file, for processes of one machine.
type fileLocks struct{ path string }

func (l fileLocks) Acquire(ctx context.Context, _ string) (func(context.Context) error, error) {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func(context.Context) error { return f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
			f.Close()
			return nil, errors.Join(err, ctx.Err())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (fileLocks) Close() error { return nil }

// brokenLocks grant every request at once.
type brokenLocks struct{}

func (brokenLocks) Acquire(ctx context.Context, _ string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, ctx.Err()
}
func (brokenLocks) Close() error { return nil }

// queueLocks grant in the order of arrival.
type queueLocks struct{ turn chan struct{} }

func newQueueLocks() queueLocks { return queueLocks{make(chan struct{}, 1)} }

func (l queueLocks) Acquire(ctx context.Context, _ string) (func(context.Context) error, error) {
	select {
	case l.turn <- struct{}{}:
		return func(context.Context) error { <-l.turn; return nil }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (queueLocks) Close() error { return nil }

func here1(locks Locks) Way {
	return Way{Open: func(context.Context) (Locks, error) { return locks, nil }}
}

func noEdge() error { return nil }

func handOver(waiters, processes int, hold time.Duration) HandOver {
	return HandOver{Name: "n", Waiters: waiters, Processes: processes, Hold: hold, WarmUp: 20 * time.Millisecond, Window: 50 * time.Millisecond}
}

// until measures for longer and longer, up to a minute, until enough was seen. It returns the
// measurement, and how long it took in all.
func until(t *testing.T, h HandOver, way Way, enough func(h *Handed, window time.Duration) bool) (*Handed, time.Duration) {
	t.Helper()
	for ; ; h.Window *= 2 {
		began := time.Now()
		handed, err := h.Measure(t.Context(), way, noEdge)
		require.NoError(t, err)
		if enough(handed, h.Window) {
			assert.GreaterOrEqual(t, handed.Elapsed, h.Window)
			return handed, time.Since(began)
		}
		require.Less(t, h.Window, time.Minute, "%+v", handed)
	}
}

func handsOver(h *Handed, _ time.Duration) bool { return h.HandOvers > 0 }

func TestHandOverHere(t *testing.T) {
	h, took := until(t, handOver(4, 1, time.Millisecond), here1(newQueueLocks()), func(h *Handed, _ time.Duration) bool {
		// Three others hold it for a millisecond each, in between.
		return h.HandOvers > 0 && h.Wait.Percentile(50) >= 2*time.Millisecond
	})
	assert.Zero(t, h.Overlaps)
	require.Len(t, h.Grants, 4)
	assert.LessOrEqual(t, h.HandOvers, h.Granted())
	// A contender has at most as many grants as holds fit in.
	assert.LessOrEqual(t, h.Granted(), int64(took/time.Millisecond)+1)
	assert.Equal(t, h.HandOvers, h.Latency.Count())
	assert.Equal(t, h.Granted(), h.Wait.Count())
	assert.GreaterOrEqual(t, h.Longest+h.Longest/50, h.Wait.Percentile(50)) // as exact as a percentile is
}

func TestHandOverAmongProcesses(t *testing.T) {
	way := inProcesses("file " + filepath.Join(t.TempDir(), "lock"))
	h, took := until(t, handOver(5, 2, 0), way, handsOver)
	assert.Zero(t, h.Overlaps)
	assert.Len(t, h.Grants, 5)
	// All processes read one clock, so no latency is longer than the measurement.
	assert.Less(t, h.Latency.Max(), took+took/50) // as exact as a latency is
}

// Overlapping holds are found, in one process and in several.
func TestHandOverFindsOverlaps(t *testing.T) {
	for name, measure := range map[string]struct {
		way       Way
		processes int
	}{
		"one process":   {here1(brokenLocks{}), 1},
		"two processes": {inProcesses("broken"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			until(t, handOver(4, measure.processes, time.Millisecond), measure.way, func(h *Handed, _ time.Duration) bool { return h.Overlaps > 0 })
		})
	}
}

// If a holder never releases the lock, the longest wait is as long as the measurement, though
// no wait has ended.
func TestHandOverCountsWaitsWithoutEnd(t *testing.T) {
	locks := newQueueLocks()
	locks.turn <- struct{}{}
	h, _ := until(t, handOver(2, 1, 0), here1(locks), func(h *Handed, window time.Duration) bool { return h.Longest >= window })
	assert.Zero(t, h.Granted())
	assert.Zero(t, h.Wait.Count())
}

// Reacquiring a lock just released is not a hand-over.
func TestHandOverToOneself(t *testing.T) {
	h, _ := until(t, handOver(1, 1, 0), here1(newQueueLocks()), func(h *Handed, _ time.Duration) bool { return h.Granted() > 0 })
	assert.Zero(t, h.HandOvers)
	assert.Zero(t, h.Latency.Count())
}

var errTest = errors.New("failed in a test")

// failingLocks return an error after some acquisitions.
type failingLocks struct {
	queueLocks
	left *atomic.Int64
}

func (l failingLocks) Acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	if l.left.Add(-1) < 0 {
		return nil, errTest
	}
	return l.queueLocks.Acquire(ctx, name)
}

func TestFailuresEndTheMeasurement(t *testing.T) {
	failing := func() Locks {
		l := failingLocks{newQueueLocks(), new(atomic.Int64)}
		l.left.Store(100)
		return l
	}
	long := handOver(3, 1, 0)
	long.Window = time.Hour
	_, err := long.Measure(t.Context(), here1(failing()), noEdge)
	require.ErrorIs(t, err, errTest)

	long.Processes = 2
	_, err = long.Measure(t.Context(), inProcesses("nonsense"), noEdge)
	require.ErrorContains(t, err, "no locks are called nonsense")
	_, err = long.Measure(t.Context(), inProcesses("crash"), noEdge)
	require.ErrorContains(t, err, "exit status 3")

	_, err = Pairs{Goroutines: 3, Window: time.Hour}.Measure(t.Context(), here1(failing()), noEdge)
	require.ErrorIs(t, err, errTest)
	_, err = Pairs{Goroutines: 3, Window: time.Hour}.Measure(t.Context(), here1(newQueueLocks()), func() error { return errTest })
	require.ErrorIs(t, err, errTest)
	_, err = Pairs{Goroutines: 3, Processes: 2, Window: time.Hour}.Measure(t.Context(), inProcesses("nonsense"), noEdge)
	require.ErrorContains(t, err, "no locks are called nonsense")
}

// A measurement ends with its context, and so do its goroutines and processes.
func TestHandOverIsCancelled(t *testing.T) {
	for name, processes := range map[string]int{"one process": 1, "two processes": 2} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			long := handOver(3, processes, 0)
			long.Window = time.Hour
			way := inProcesses("file " + filepath.Join(t.TempDir(), "lock"))
			_, err := long.Measure(ctx, way, func() error { cancel(errTest); return nil })
			require.ErrorIs(t, err, errTest)
		})
	}
}

func TestPairs(t *testing.T) {
	for name, processes := range map[string]int{"one process": 1, "three processes": 3} {
		t.Run(name, func(t *testing.T) {
			edges := 0
			measure := Pairs{Prefix: "n", Goroutines: 4, Processes: processes, Names: 1, Window: 50 * time.Millisecond}
			p, err := measure.Measure(t.Context(), inProcesses("broken"), func() error { edges++; return nil })
			require.NoError(t, err)
			assert.Equal(t, 2, edges)
			for p.Count == 0 || p.CPU == 0 { // the machine did something else
				measure.Window *= 2
				require.Less(t, measure.Window, time.Minute, "%+v", p)
				p, err = measure.Measure(t.Context(), inProcesses("broken"), noEdge)
				require.NoError(t, err)
			}
			assert.Equal(t, p.Count, p.Latency.Count())
			assert.InEpsilon(t, float64(p.Count)/p.Elapsed.Seconds(), p.PerSecond(), 1e-9)
		})
	}
}

// The goroutines of all processes use names that no other has: none is granted twice.
func TestPairsUseNamesOfTheirOwn(t *testing.T) {
	folder := t.TempDir()
	allWork := func() error {
		for {
			taken, err := os.ReadDir(folder)
			if err != nil {
				return err
			}
			goroutines := map[string]bool{}
			for _, file := range taken {
				goroutine, _, _ := strings.Cut(file.Name(), "-")
				goroutines[goroutine] = true
			}
			if len(goroutines) == 5 {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
	}
	_, err := Pairs{Prefix: "n", Goroutines: 5, Processes: 2, Window: time.Millisecond}.Measure(t.Context(), inProcesses("once "+folder), allWork)
	require.NoError(t, err)
}

// onceLocks grant each name once, among processes.
type onceLocks struct{ folder string }

func (l onceLocks) Acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	f, err := os.OpenFile(filepath.Join(l.folder, name), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return f.Close() }, ctx.Err()
}
func (onceLocks) Close() error { return nil }

func TestJain(t *testing.T) {
	for _, test := range []struct {
		got  []int64
		want float64
	}{
		{[]int64{7}, 1},
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{9, 0, 0}, 1.0 / 3},
		{[]int64{1, 3}, 0.8},
		{[]int64{0, 0}, 1},
		{nil, 1},
	} {
		assert.InDelta(t, test.want, Jain(test.got), 1e-12, "%v", test.got)
	}
}

func TestLatencies(t *testing.T) {
	odd, even := NewLatencies(), NewLatencies()
	for i := 1; i <= 1000; i += 2 {
		odd.Add(time.Duration(i) * time.Microsecond)
		even.Add(time.Duration(i+1) * time.Microsecond)
	}
	text, err := json.Marshal(even)
	require.NoError(t, err)
	all := new(Latencies)
	require.NoError(t, json.Unmarshal(text, all))
	all.Merge(odd)
	assert.EqualValues(t, 1000, all.Count())
	for p, want := range map[float64]time.Duration{50: 500, 99: 990, 100: 1000} {
		assert.InEpsilon(t, want*time.Microsecond, all.Percentile(p), 0.02, "p%v", p)
	}
	assert.InEpsilon(t, time.Millisecond, all.Max(), 0.02)
	all.Add(-time.Second)
	all.Add(100 * time.Hour)
	assert.InEpsilon(t, time.Hour, all.Max(), 0.02)
	assert.Zero(t, NewLatencies().Percentile(99))
}

func TestPortions(t *testing.T) {
	for _, total := range []int{1, 7, 128} {
		for n := 1; n <= 5; n++ {
			sum := 0
			for i := range n {
				one := portion(total, n, i)
				assert.InDelta(t, float64(total)/float64(n), one, 1)
				sum += one
			}
			assert.Equal(t, total, sum)
		}
	}
}

func TestSplit(t *testing.T) {
	earlier := Calls{"evalsha": {10, time.Second}, "hset": {10, 2}}
	later := Calls{"evalsha": {14, time.Minute}, "hset": {18, 5}, "del": {3, 0}, "info": {2, 1}, "get": {}}
	since := later.Since(earlier)
	assert.Equal(t, Calls{"evalsha": {4, time.Minute - time.Second}, "hset": {8, 3}, "del": {3, 0}}, since)
	clients, scripts := since.Split(func(name string) bool { return name == "evalsha" })
	assert.EqualValues(t, 4, clients)
	assert.EqualValues(t, 11, scripts)
}
