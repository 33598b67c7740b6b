package peers

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// BenchmarkSchedule adds timeouts to those that are pending. They are cancelled outside the
// measured time, so the number of pending timeouts stays near that in the name.
func BenchmarkSchedule(b *testing.B) {
	sizes(b, func(b *testing.B, i impl, pending int) { i.schedule(b, pending) })
}

// BenchmarkScheduleCancel schedules one timeout and cancels it, beside those
// that are pending.
func BenchmarkScheduleCancel(b *testing.B) {
	sizes(b, func(b *testing.B, i impl, pending int) { i.scheduleCancel(b, pending) })
}

// BenchmarkScheduleCancelParallel does it from as many goroutines as there are
// processors.
func BenchmarkScheduleCancelParallel(b *testing.B) {
	each(b, func(b *testing.B, i impl) { i.scheduleCancelParallel(b) })
}

// BenchmarkChurn cancels one of a million pending timeouts, drawn at random, and
// schedules another in its place.
func BenchmarkChurn(b *testing.B) {
	eachThat(b, func(i impl) bool { return i.most() >= million },
		func(b *testing.B, i impl) { i.churn(b, million) })
}

const million = 1_000_000

// prefill schedules the pending timeouts and waits until the worker has linked them.
func prefill[H any](t timers[H], pending int) []H {
	handles := make([]H, pending)
	for i := range handles {
		handles[i] = t.schedule(delay(i), nothing)
	}
	time.Sleep(settling)
	return handles
}

func (o of[H]) schedule(b *testing.B, pending int) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	prefill(t, pending)
	batch := make([]H, 0, max(pending/10, 20_000))
	i := 0
	m := startMeter(b)
	for b.Loop() {
		batch = append(batch, t.schedule(delay(i), nothing))
		i++
		if len(batch) == cap(batch) {
			m.pause(func() {
				for _, h := range batch {
					t.cancel(h)
				}
				batch = batch[:0]
			})
		}
	}
	m.report()
}

func (o of[H]) scheduleCancel(b *testing.B, pending int) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	prefill(t, pending)
	i := 0
	m := startMeter(b)
	for b.Loop() {
		t.cancel(t.schedule(delay(i), nothing))
		i++
	}
	m.report()
}

func (o of[H]) scheduleCancelParallel(b *testing.B) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	prefill(t, 1000)
	var producers atomic.Int64
	m := startMeter(b)
	b.RunParallel(func(pb *testing.PB) {
		for i := int(producers.Add(1)) * 1000; pb.Next(); i++ {
			t.cancel(t.schedule(delay(i), nothing))
		}
	})
	m.report()
}

func (o of[H]) churn(b *testing.B, pending int) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	handles := prefill(t, pending)
	random := rand.NewPCG(3, 4)
	i := 0
	m := startMeter(b)
	for b.Loop() {
		h := &handles[random.Uint64()%uint64(len(handles))]
		t.cancel(*h)
		*h = t.schedule(delay(i), nothing)
		i++
	}
	m.report()
}

// reusable is how many reusable timeouts BenchmarkRearm goes round.
const reusable = 1000

// rearmed are the kinds of deadlines that timeouts are armed anew with.
var rearmed = []struct {
	deadline string
	delay    func(i int) time.Duration
}{
	// Always the same time from now, as idle timeouts, leases and retries are.
	{"later", func(int) time.Duration { return idleTimeout }},
	// Back and forth, so that half of them become earlier.
	{"random", delay},
}

// idleTimeout is short enough for the wheel to visit the timeouts' former buckets.
const idleTimeout = 250 * time.Millisecond

// eachDeadline runs a benchmark for each kind of deadline.
func eachDeadline(b *testing.B, run func(b *testing.B, delay func(i int) time.Duration)) {
	for _, r := range rearmed {
		b.Run("deadline="+r.deadline, func(b *testing.B) { run(b, r.delay) })
	}
}

// BenchmarkRearm arms a timeout that its user keeps, anew and whatever its state:
// the wheel's Timer, embedded in the user's struct, by Arm, the runtime's by Stop
// and Reset.
func BenchmarkRearm(b *testing.B) {
	b.Run("impl=wheel", func(b *testing.B) { eachDeadline(b, arm) })
	b.Run("impl=runtime", func(b *testing.B) { eachDeadline(b, stopReset) })
}

func arm(b *testing.B, delay func(i int) time.Duration) {
	timers, closeAll := wheelTimersOf(reusable)
	defer closeAll()
	i := 0
	m := startMeter(b)
	for b.Loop() {
		timers[i%reusable].Arm(delay(i))
		i++
	}
	m.report()
}

// BenchmarkCancelArm cancels it and arms it again.
func BenchmarkCancelArm(b *testing.B) {
	b.Run("impl=wheel", func(b *testing.B) {
		timers, closeAll := wheelTimersOf(reusable)
		defer closeAll()
		i := 0
		m := startMeter(b)
		for b.Loop() {
			t := &timers[i%reusable]
			t.Cancel()
			t.Arm(delay(i))
			i++
		}
		m.report()
	})
	b.Run("impl=runtime", func(b *testing.B) { stopReset(b, delay) })
}

func stopReset(b *testing.B, delay func(i int) time.Duration) {
	timers, closeAll := runtimeTimersOf(reusable)
	defer closeAll()
	i := 0
	m := startMeter(b)
	for b.Loop() {
		t := timers[i%reusable]
		t.Stop()
		t.Reset(delay(i))
		i++
	}
	m.report()
}

// BenchmarkRearmParallel arms timeouts anew from as many goroutines as there are
// processors, each with timeouts of its own.
func BenchmarkRearmParallel(b *testing.B) {
	b.Run("impl=wheel", func(b *testing.B) { eachDeadline(b, armParallel) })
	b.Run("impl=runtime", func(b *testing.B) { eachDeadline(b, stopResetParallel) })
}

func armParallel(b *testing.B, delay func(i int) time.Duration) {
	w := must(wheel.New(wheel.Config{Tick: defaultTick, Buckets: buckets, Logger: discard}))
	defer w.Stop()
	m := startMeter(b)
	b.RunParallel(func(pb *testing.PB) {
		timers := newWheelTimers(w, reusable)
		for i := 0; pb.Next(); i++ {
			timers[i%reusable].Arm(delay(i))
		}
	})
	m.report()
}

func stopResetParallel(b *testing.B, delay func(i int) time.Duration) {
	m := startMeter(b)
	b.RunParallel(func(pb *testing.PB) {
		timers, closeAll := runtimeTimersOf(reusable)
		defer closeAll()
		for i := 0; pb.Next(); i++ {
			t := timers[i%reusable]
			t.Stop()
			t.Reset(delay(i))
		}
	})
	m.report()
}

// wheelTimersOf makes a wheel with so many armed timers.
func wheelTimersOf(n int) (timers []wheel.Timer, closeAll func()) {
	w := must(wheel.New(wheel.Config{Tick: defaultTick, Buckets: buckets, Logger: discard}))
	timers = newWheelTimers(w, n)
	for i := range timers {
		timers[i].Arm(delay(i))
	}
	time.Sleep(settling)
	return timers, func() { w.Stop() }
}

func newWheelTimers(w *wheel.Wheel, n int) []wheel.Timer {
	timers := make([]wheel.Timer, n)
	for i := range timers {
		timers[i].Init(w, nothing)
	}
	return timers
}

// runtimeTimersOf makes so many timers of the runtime.
func runtimeTimersOf(n int) (timers []*time.Timer, closeAll func()) {
	timers = make([]*time.Timer, n)
	for i := range timers {
		timers[i] = time.AfterFunc(delay(i), nothing)
	}
	return timers, func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}
