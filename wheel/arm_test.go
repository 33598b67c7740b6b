package wheel

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
)

// pauseWorker stops the worker, which sleeps for a minute, as it empties the inboxes: the
// last one is still to come.
func (w *Wheel) pauseWorker() (resume func()) {
	first, last := &w.shards[0], &w.shards[len(w.shards)-1]
	Must(last.put(w.ticks.after(day), func() {}))
	locked, unlock := make(chan struct{}), make(chan struct{})
	go last.inbox.Arrivals(func(*bucket.Node) bool {
		close(locked)
		<-unlock
		return false
	})
	<-locked
	Must(first.put(w.ticks.after(30*time.Second), func() {})) // which wakes it
	for first.inbox.Earliest() != bucket.Never {
		runtime.Gosched()
	}
	return func() { close(unlock) }
}

// asleep runs a test in virtual time on a wheel whose worker sleeps for a minute, with a
// timer and whether that has run.
func asleep(t *testing.T, test func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{Tick: ms})
		var timer Timer
		var ran atomic.Bool
		timer.Init(w, func() { ran.Store(true) })
		Must(w.Schedule(time.Minute, func() {}))
		pass(0)
		test(t, w, &timer, &ran)
	})
}

// Two goroutines arm a timer that the worker has not linked yet, the second for an earlier
// deadline, and with different inboxes. The worker runs it in time, whichever of the
// inboxes it has emptied already.
func TestEarlierDeadlineThroughAnotherInbox(t *testing.T) {
	asleep(t, func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool) {
		resume := w.pauseWorker()
		Must(w.shards[0].arm(&timer.node, w.ticks.after(time.Hour)))
		Must(w.shards[len(w.shards)-1].arm(&timer.node, w.ticks.after(10*ms)))
		resume()
		pass(10 * ms)
		check(t, ran.Load(), "it waits for another deadline")
	})
}

// A goroutine that has armed a timer for an earlier deadline is interrupted before the
// worker can find the timer by its inbox. Another one arms it for an even earlier deadline
// meanwhile. The timer runs as soon as the worker can find it.
func TestEarlierDeadlineDuringAnArm(t *testing.T) {
	asleep(t, func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool) {
		Must(w.shards[0].arm(&timer.node, w.ticks.after(2*time.Hour))) // which the worker has emptied when it pauses
		pass(0)
		resume := w.pauseWorker()
		s, tick := w.shard(), w.ticks.after(time.Hour)
		interrupted := timer.node.Arm(tick)
		check(t, interrupted.Queue(), "the worker has yet to link the timer: %+v", interrupted)
		Must(timer.Arm(20 * ms))
		resume()
		pass(10 * ms)
		s.armed(&timer.node, tick, interrupted)
		pass(10 * ms)
		check(t, ran.Load(), "it waits for another deadline")
	})
}

// A goroutine that arms a timer for an earlier deadline is interrupted before it names the
// timer in an inbox; another one cancels it meanwhile. The worker lets go of the timer within
// a tick: the naming makes it look.
func TestCancelledDuringAnArm(t *testing.T) {
	asleep(t, func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool) {
		Must(timer.Arm(time.Hour))
		Must(w.Schedule(ms, func() {})) // which makes the worker link the timer
		pass(5 * ms)
		tick := w.ticks.after(30 * time.Minute)
		interrupted := timer.node.Arm(tick)
		check(t, interrupted.Queue() && timer.Cancel(), "it is not pending, or the worker need not look: %+v", interrupted)
		pass(5 * ms)
		w.shard().armed(&timer.node, tick, interrupted)
		pass(ms)
		check(t, timer.node.List() == 0, "the wheel still has the timer")
		pass(2 * time.Hour)
		check(t, !ran.Load(), "it has run")
	})
}

// Stop has begun on a full wheel, and has yet to take out what is pending: a caller that is
// refused as by a full wheel would try again.
func TestStoppedIsNotFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{MaxPending: 1})
		Must(w.Schedule(time.Hour, func() {}))
		w.mu.Lock()
		go w.Stop()
		for !w.stopping.Load() {
			runtime.Gosched()
		}
		_, once := w.Schedule(0, func() {})
		_, every := w.Every(second, Skip, func() {})
		w.mu.Unlock()
		check(t, errors.Is(once, ErrStopped) && errors.Is(every, ErrStopped), "%v, %v", once, every)
	})
}

// A goroutine that gives back the place of a timer, or takes it, is interrupted, on a wheel
// with one place. Another one that arms the timer is not refused meanwhile, but waits.
func TestArmWaitsForTheTimersPlace(t *testing.T) {
	for name, interrupt := range map[string]func(w *Wheel, timer *Timer) (resume func()){
		"cancelled": func(w *Wheel, timer *Timer) func() {
			Must(timer.Arm(time.Minute))
			_, won, _ := timer.node.Disarm()
			if !won {
				panic("it was not pending")
			}
			return func() { w.disarmed(&timer.node) }
		},
		"armed": func(w *Wheel, timer *Timer) func() {
			if !timer.node.Reserve() || !w.reserve() {
				panic("it has a place already")
			}
			return func() { Must(w.shard().arm(&timer.node, w.ticks.after(time.Minute))) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, Config{Tick: ms, MaxPending: 1})
				var timer Timer
				timer.Init(w, func() {})
				resume := interrupt(w, &timer)
				var armed atomic.Bool
				go func() {
					_, err := timer.Arm(time.Hour)
					check(t, err == nil, "the timer is refused: %v", err)
					armed.Store(true)
				}()
				for range 100 {
					runtime.Gosched()
				}
				check(t, !armed.Load(), "Arm has not waited")
				resume()
				synctest.Wait()
				check(t, armed.Load() && w.live.Load() == 1, "%d places are taken", w.live.Load())
				check(t, time.Until(timer.Deadline()) >= time.Hour, "it is due in %v", time.Until(timer.Deadline()))
			})
		})
	}
}

// A goroutine is interrupted before it names a timer in an inbox, which it has cancelled, or
// armed for an earlier deadline, while the timer was about to run. The timer is armed again
// meanwhile: Stop returns it.
func TestStopReturnsWhatIsNotNamedYet(t *testing.T) {
	for name, interrupt := range map[string]func(w *Wheel, timer *Timer) bool{
		"cancelled": func(w *Wheel, timer *Timer) bool {
			_, won, _ := timer.node.Disarm()
			w.shard().inbox.Disarmed()
			return won && timer.node.Queue()
		},
		"armed": func(w *Wheel, timer *Timer) bool { return timer.node.Arm(w.ticks.now() - 1).Queue() },
	} {
		t.Run(name, func(t *testing.T) {
			asleep(t, func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool) {
				var before Timer
				before.Init(w, func() { check(t, interrupt(w, timer), "the worker need not look") })
				for _, next := range []*Timer{&before, timer} {
					Must(w.shards[0].arm(&next.node, w.ticks.after(10*ms)))
				}
				pass(20 * ms)
				Must(timer.Arm(time.Hour))
				left := w.Stop()
				w.shard().inbox.Name(&timer.node)
				check(t, len(left) == 2 && left[1].Timeout == timer.Timeout(), "Stop returned %d, and not the timer, which is %v",
					len(left), timer.State())
			})
		})
	}
}

// A goroutine that arms a timer behind Stop is interrupted before it is refused. Another one
// is refused meanwhile.
func TestArmBesideAnArmBehindStop(t *testing.T) {
	for name, limit := range map[string]int64{"": 0, "limited": 9} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, Config{Tick: ms, MaxPending: limit})
				var timer Timer
				timer.Init(w, func() { t.Error("it has run") })
				Must(timer.Arm(time.Minute))
				Must(w.Schedule(10*ms, func() { time.Sleep(second) }))
				time.Sleep(20 * ms)
				check(t, timer.Cancel(), "it is not pending")
				go w.Stop()
				time.Sleep(20 * ms)
				timer.node.Arm(w.ticks.after(time.Minute))
				_, err := timer.Arm(time.Hour)
				check(t, errors.Is(err, ErrStopped) && timer.State() == Cancelled, "%v; it is %v", err, timer.State())
			})
		})
	}
}

// Two goroutines arm a timer that the wheel does not have, with different inboxes. That of the
// first is busy, so the second is faster. The deadline of the first is the later call's, and counts.
func TestTimerThatEntersTwice(t *testing.T) {
	asleep(t, func(t *testing.T, w *Wheel, timer *Timer, ran *atomic.Bool) {
		first, last := &w.shards[0], &w.shards[len(w.shards)-1]
		Must(first.put(w.ticks.after(time.Hour), func() {}))
		armed, soon, later := make(chan struct{}), w.ticks.after(10*ms), w.ticks.after(time.Hour)
		first.inbox.Arrivals(func(*bucket.Node) bool { // with the inbox locked
			go func() {
				Must(first.arm(&timer.node, soon))
				close(armed)
			}()
			for range 100 {
				runtime.Gosched()
			}
			Must(last.arm(&timer.node, later))
			return false
		})
		<-armed
		pass(10 * ms)
		check(t, ran.Load(), "it waits for another deadline, in %v", time.Until(timer.Deadline()))
	})
}
