package wheel

import "time"

// An alarm is what the worker sleeps on. The worker's goroutine calls open before the
// first wait. Any goroutine calls ring.
type alarm interface {
	open()
	// wait returns after d, or when ring was called since the last wait. It may return
	// early without a reason.
	wait(d time.Duration)
	ring()
}

// portableAlarm is the alarm for all systems: a channel and a timer of the runtime's.
type portableAlarm struct {
	rung  chan struct{}
	timer *time.Timer // made by the first wait, on the worker's goroutine
}

func newPortableAlarm() *portableAlarm { return &portableAlarm{rung: make(chan struct{}, 1)} }

func (c *portableAlarm) open() {}

func (c *portableAlarm) ring() {
	select {
	case c.rung <- struct{}{}:
	default:
	}
}

func (c *portableAlarm) wait(d time.Duration) {
	if d == forever {
		<-c.rung
		return
	}
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	select {
	case <-c.rung:
		c.timer.Stop()
	case <-c.timer.C:
	}
}
