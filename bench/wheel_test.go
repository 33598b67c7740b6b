package bench

import (
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
	"github.com/stretchr/testify/assert"
)

func TestWheelColumnsAreNamedByTheirTick(t *testing.T) {
	assert.Equal(t, "wheel 10ms", Wheel(wheel.Config{}).Name)
	assert.Equal(t, 10*time.Millisecond, Wheel(wheel.Config{}).Tick)
	assert.Equal(t, "wheel 1ms precise", Wheel(wheel.Config{Tick: time.Millisecond, Precise: true}).Name)
	_, err := Wheel(wheel.Config{Tick: -1}).Open()
	assert.Error(t, err)
}

func TestWheelIsNeverEarlyAndAtMostATickLateInVirtualTime(t *testing.T) {
	for _, mode := range []Mode{OneShot, Periodic, Rearmed} {
		t.Run(mode.String(), func(t *testing.T) {
			const tick = 3 * time.Millisecond
			r := measure(t, Wheel(wheel.Config{Tick: tick}), Plan{
				Mode: mode, Timeouts: 1000, MinDelay: tick, MaxDelay: 5 * time.Second,
				Duration: 10 * time.Second,
			})
			assert.False(t, r.Broken(), "%+v", r)
			assert.Equal(t, r.Planned, r.Lateness.Count())
			assert.LessOrEqual(t, r.Lateness.Max(), tick)
			assert.LessOrEqual(t, r.Jitter.Max(), tick)
		})
	}
}
