package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// A bubble's clock is exact, so a monitor in it sees no stall.
func TestMonitorSeesNoStallInExactTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMonitor(time.Microsecond)
		time.Sleep(time.Minute)
		if s := m.stop(); s.count != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStallsAreCounted(t *testing.T) {
	var s stalls
	for _, d := range []time.Duration{-time.Millisecond, 49 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond} {
		s.add(d, 50*time.Millisecond)
	}
	if s != (stalls{count: 2, longest: 70 * time.Millisecond, total: 120 * time.Millisecond}) {
		t.Errorf("%+v", s)
	}
}
