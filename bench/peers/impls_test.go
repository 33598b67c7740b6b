package peers

import (
	"sync/atomic"
	"time"

	"github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"
	"github.com/leasewheel/leasewheel/wheel"
	ouqiang "github.com/ouqiang/timewheel"
	rfyiamcool "github.com/rfyiamcool/go-timewheel"
	singchia "github.com/singchia/go-timer/v2"
	"github.com/zeromicro/go-zero/core/collection"
)

// wheelHandle is the handle of the wheel's timeouts.
type wheelHandle = wheel.Timeout

// impls are all implementations, each used as its own documentation shows.
var impls = []impl{
	of[wheelHandle]{
		label: "wheel",
		open: func(tick time.Duration) timers[wheelHandle] {
			return wheelTimers{must(wheel.New(wheel.Config{Tick: tick, Buckets: buckets, Logger: discard}))}
		},
		rearm: func(t timers[wheelHandle], first, period time.Duration, again func() bool) {
			timer := new(wheel.Timer)
			timer.Init(t.(wheelTimers).Wheel, func() {
				if again() {
					timer.Arm(period)
				}
			})
			timer.Arm(first)
		},
	},
	of[*time.Timer]{
		label: "runtime",
		open:  func(time.Duration) timers[*time.Timer] { return runtimeTimers{} },
		rearm: func(_ timers[*time.Timer], first, period time.Duration, again func() bool) {
			var timer *time.Timer
			armed := make(chan struct{})
			timer = time.AfterFunc(first, func() {
				<-armed
				if again() {
					timer.Reset(period)
				}
			})
			close(armed)
		},
	},
	of[*timingwheel.Timer]{
		label: "russellluo",
		open: func(tick time.Duration) timers[*timingwheel.Timer] {
			w := timingwheel.NewTimingWheel(tick, buckets)
			w.Start()
			return russellLuoTimers{w}
		},
	},
	of[antlabs.TimeNoder]{
		label: "antlabs",
		ticks: []time.Duration{10 * time.Millisecond},
		open: func(time.Duration) timers[antlabs.TimeNoder] {
			t := antlabs.NewTimer(antlabs.WithTimeWheel())
			go t.Run()
			return antlabsTimers{t}
		},
	},
	of[int64]{
		label:      "ouqiang",
		ticks:      []time.Duration{time.Second}, // shorter ones divide by zero
		maxPending: 100_000,
		open: func(tick time.Duration) timers[int64] {
			w := ouqiang.New(tick, buckets, func(task any) { task.(func())() })
			w.Start()
			return &ouqiangTimers{wheel: w}
		},
	},
	of[*rfyiamcool.Task]{
		label: "rfyiamcool",
		open: func(tick time.Duration) timers[*rfyiamcool.Task] {
			w := must(rfyiamcool.NewTimeWheel(tick, buckets))
			w.Start()
			return rfyiamcoolTimers{w}
		},
	},
	of[int64]{
		label: "gozero",
		open: func(tick time.Duration) timers[int64] {
			return &goZeroTimers{wheel: must(collection.NewTimingWheel(tick, buckets,
				func(_, task any) { task.(func())() }))}
		},
	},
	of[singchia.Tick]{
		label: "singchia",
		hangs: true, // its worker waits for tasks, and tasks for its queue
		open: func(tick time.Duration) timers[singchia.Tick] {
			return singchiaTimers{singchia.NewTimer(singchia.WithTimeInterval(tick))}
		},
	},
}

type wheelTimers struct{ *wheel.Wheel }

func (w wheelTimers) schedule(d time.Duration, task func()) wheelHandle {
	t, err := w.Schedule(d, task)
	if err != nil {
		panic(err)
	}
	return t
}
func (wheelTimers) cancel(t wheelHandle)                 { t.Cancel() }
func (wheelTimers) reset(t wheelHandle, d time.Duration) { t.Reset(d) }
func (w wheelTimers) close()                             { w.Stop() }

type runtimeTimers struct{}

func (runtimeTimers) schedule(d time.Duration, task func()) *time.Timer {
	return time.AfterFunc(d, task)
}
func (runtimeTimers) cancel(t *time.Timer)                 { t.Stop() }
func (runtimeTimers) reset(t *time.Timer, d time.Duration) { t.Reset(d) }
func (runtimeTimers) close()                               {}

type russellLuoTimers struct{ wheel *timingwheel.TimingWheel }

func (r russellLuoTimers) schedule(d time.Duration, task func()) *timingwheel.Timer {
	return r.wheel.AfterFunc(d, task)
}
func (russellLuoTimers) cancel(t *timingwheel.Timer) { t.Stop() }
func (r russellLuoTimers) close()                    { r.wheel.Stop() }

// antlabsTimers are not reset: a reset into the timeout's own slot deadlocks.
type antlabsTimers struct{ timer antlabs.Timer }

func (a antlabsTimers) schedule(d time.Duration, task func()) antlabs.TimeNoder {
	return a.timer.AfterFunc(d, task)
}
func (antlabsTimers) cancel(t antlabs.TimeNoder) { t.Stop() }
func (a antlabsTimers) close()                   { a.timer.Stop() }

// ouqiangTimers and goZeroTimers identify timeouts by keys that the caller chooses.
type ouqiangTimers struct {
	wheel *ouqiang.TimeWheel
	last  atomic.Int64
}

func (o *ouqiangTimers) schedule(d time.Duration, task func()) int64 {
	key := o.last.Add(1)
	o.wheel.AddTimer(d, key, task)
	return key
}
func (o *ouqiangTimers) cancel(key int64) { o.wheel.RemoveTimer(key) }
func (o *ouqiangTimers) close()           { o.wheel.Stop() }

type rfyiamcoolTimers struct{ wheel *rfyiamcool.TimeWheel }

func (r rfyiamcoolTimers) schedule(d time.Duration, task func()) *rfyiamcool.Task {
	return r.wheel.Add(d, task)
}
func (r rfyiamcoolTimers) cancel(t *rfyiamcool.Task) { r.wheel.Remove(t) }
func (r rfyiamcoolTimers) close()                    { r.wheel.Stop() }

type goZeroTimers struct {
	wheel *collection.TimingWheel
	last  atomic.Int64
}

func (g *goZeroTimers) schedule(d time.Duration, task func()) int64 {
	key := g.last.Add(1)
	if err := g.wheel.SetTimer(key, task, d); err != nil {
		panic(err)
	}
	return key
}
func (g *goZeroTimers) cancel(key int64)                 { g.wheel.RemoveTimer(key) }
func (g *goZeroTimers) reset(key int64, d time.Duration) { g.wheel.MoveTimer(key, d) }
func (g *goZeroTimers) close()                           { g.wheel.Stop() }

type singchiaTimers struct{ timer singchia.Timer }

func (s singchiaTimers) schedule(d time.Duration, task func()) singchia.Tick {
	return s.timer.Add(d, singchia.WithHandler(func(*singchia.Event) { task() }))
}
func (singchiaTimers) cancel(t singchia.Tick)                 { t.Cancel() }
func (singchiaTimers) reset(t singchia.Tick, d time.Duration) { t.Delay(d) }
func (s singchiaTimers) close()                               { s.timer.Close() }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
