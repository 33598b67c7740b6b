//go:build unix

package bench

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

// share is the processor time that each part of a measurement uses in these tests.
const share = 50 * time.Millisecond

// burn returns when the process has used that much more processor time.
func burn(d time.Duration) {
	used := func() time.Duration {
		u, _ := ReadUsage()
		return u.CPU
	}
	for begin := used(); used()-begin < d; {
	}
}

// burning are timers that use processor time to schedule, and for each task.
type burning struct{ runtimeTimers }

func (b *burning) Schedule(d time.Duration, task func()) error {
	burn(share)
	return b.runtimeTimers.Schedule(d, func() { burn(share); task() })
}

// The usage is that of the whole measurement: of scheduling, and of the runs. In virtual
// time no run comes before all is scheduled.
func TestUsageIsThatOfTheWholeMeasurement(t *testing.T) {
	column := Column{Name: "burning", Open: func() (Timers, error) { return new(burning), nil }}
	r := measure(t, column, Plan{Timeouts: 1, MinDelay: time.Second, MaxDelay: time.Second})
	require.True(t, r.UsageKnown)
	assert.GreaterOrEqual(t, r.Usage.CPU, 2*share)
}

// burningExecutor uses processor time for each task.
type burningExecutor struct{}

func (burningExecutor) Execute(task func()) error {
	burn(share)
	task()
	return nil
}

func TestStressUsageIsThatOfTheRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Stress(t.Context(), StressPlan{
			Wheel:    wheel.Config{Executor: burningExecutor{}},
			Expiries: 1, Producers: 1, Pending: 1, MaxDelay: time.Second,
		}, nil)
		require.NoError(t, err)
		require.True(t, r.UsageKnown)
		assert.GreaterOrEqual(t, r.Usage.CPU, share)
	})
}
