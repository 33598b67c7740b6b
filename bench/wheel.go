package bench

import (
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Wheel is the column of a wheel. Its name contains the tick, and the precise mode if that
// is on.
func Wheel(config wheel.Config) Column {
	c := Column{Tick: config.Tick, Precise: config.Precise}
	if c.Tick == 0 {
		c.Tick = wheel.DefaultTick
	}
	c.Name = fmt.Sprintf("wheel %v", c.Tick)
	if c.Precise {
		c.Name += " precise"
	}
	c.Open = func() (Timers, error) {
		w, err := wheel.New(config)
		if err != nil {
			return nil, err
		}
		return wheelTimers{w}, nil
	}
	return c
}

type wheelTimers struct{ *wheel.Wheel }

func (w wheelTimers) Schedule(d time.Duration, task func()) error {
	_, err := w.Wheel.Schedule(d, task)
	return err
}

func (w wheelTimers) Repeat(period time.Duration, task func()) error {
	_, err := w.Every(period, wheel.CatchUp, task)
	return err
}

func (w wheelTimers) Reusable(task func()) (arm func(d time.Duration) error) {
	t := new(wheel.Timer)
	t.Init(w.Wheel, task)
	return func(d time.Duration) error { _, err := t.Arm(d); return err }
}

func (w wheelTimers) Close() { w.Stop() }
