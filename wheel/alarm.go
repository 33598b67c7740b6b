package wheel

import "time"

// An alarm is what the worker sleeps on. open and close are called by the
// worker's goroutine before the first wait and after the last; ring by any.
type alarm interface {
	open()
	// wait returns after d, or when ring was called since the last wait, or
	// now and then for no reason.
	wait(d time.Duration)
	ring()
	close()
}

// chime is the portable alarm: a channel and a timer of the runtime's.
type chime struct {
	rung  chan struct{}
	timer *time.Timer // made by the first wait, so that it is the worker's
}

func newChime() *chime { return &chime{rung: make(chan struct{}, 1)} }

func (c *chime) open() {}

func (c *chime) close() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *chime) ring() {
	select {
	case c.rung <- struct{}{}:
	default:
	}
}

func (c *chime) wait(d time.Duration) {
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
