package peers

import (
	"testing"
	"time"
)

const (
	// resetTimeouts are pending while one after the other is moved.
	resetTimeouts = 1000
	// resetDelay is short, so that the wheel visits the timeouts' former buckets again and
	// again.
	resetDelay = 250 * time.Millisecond
)

// BenchmarkReset moves a pending timeout to a later deadline, as a server does
// with the timeout of a connection at every request.
func BenchmarkReset(b *testing.B) {
	eachThat(b, impl.canReset, func(b *testing.B, i impl) { i.reset(b) })
	b.Run("impl=wheel-timer", func(b *testing.B) {
		timers, closeAll := wheelTimersOf(resetTimeouts)
		defer closeAll()
		i := 0
		m := startMeter(b)
		for b.Loop() {
			timers[i%resetTimeouts].Arm(resetDelay)
			i++
		}
		m.report()
	})
}

// BenchmarkResetAt moves a thousand timeouts with one clock reading of the caller's.
func BenchmarkResetAt(b *testing.B) {
	b.Run("impl=wheel", func(b *testing.B) {
		w := impls[0].(of[wheelHandle]).open(defaultTick)
		defer w.close()
		handles := prefill(w, resetTimeouts)
		for _, h := range handles {
			h.Reset(resetDelay)
		}
		var deadline time.Time
		i := 0
		m := startMeter(b)
		for b.Loop() {
			if i%resetTimeouts == 0 {
				deadline = time.Now().Add(resetDelay)
			}
			handles[i%resetTimeouts].ResetAt(deadline)
			i++
		}
		m.report()
	})
	b.Run("impl=wheel-timer", func(b *testing.B) {
		timers, closeAll := wheelTimersOf(resetTimeouts)
		defer closeAll()
		for i := range timers {
			timers[i].Arm(resetDelay)
		}
		var deadline time.Time
		i := 0
		m := startMeter(b)
		for b.Loop() {
			if i%resetTimeouts == 0 {
				deadline = time.Now().Add(resetDelay)
			}
			timers[i%resetTimeouts].ArmAt(deadline)
			i++
		}
		m.report()
	})
}

func (o of[H]) canReset() bool {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	_, ok := t.(resetter[H])
	return ok
}

func (o of[H]) reset(b *testing.B) {
	t := o.open(o.tick(defaultTick))
	defer t.close()
	handles := make([]H, resetTimeouts)
	for i := range handles {
		handles[i] = t.schedule(time.Minute, nothing)
	}
	r := t.(resetter[H])
	for _, h := range handles {
		r.reset(h, resetDelay)
	}
	i := 0
	m := startMeter(b)
	for b.Loop() {
		r.reset(handles[i%resetTimeouts], resetDelay)
		i++
	}
	m.report()
}
