package wheel_test

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Values out of range are refused, with the field's name and the range.
func TestNewRefusesSenselessValues(t *testing.T) {
	for _, c := range []struct {
		config wheel.Config
		says   string
	}{
		{wheel.Config{Tick: -1}, "Config.Tick is -1ns; it must be 100µs to 1h0m0s, or 0 for 10ms"},
		{wheel.Config{Tick: 1}, "Config.Tick is 1ns"},
		{wheel.Config{Tick: 100*time.Microsecond - 1}, "Config.Tick is 99.999µs"},
		{wheel.Config{Tick: time.Hour + 1}, "Config.Tick is 1h0m0.000000001s"},
		{wheel.Config{Tick: math.MaxInt64}, "Config.Tick"},
		{wheel.Config{Tick: math.MinInt64}, "Config.Tick"},
		{wheel.Config{Buckets: -1}, "Config.Buckets is -1; it must be 1 to 1048576, or 0 for 512"},
		{wheel.Config{Buckets: 1<<20 + 1}, "Config.Buckets is 1048577"},
		{wheel.Config{Buckets: math.MaxInt}, "Config.Buckets"},
		{wheel.Config{Buckets: math.MinInt}, "Config.Buckets"},
		{wheel.Config{MaxPending: -1}, "Config.MaxPending is -1; it must be above 0, or 0 for no limit"},
		{wheel.Config{MaxPending: math.MinInt64}, "Config.MaxPending"},
		{wheel.Config{Executor: new(wheel.Pool)}, "Config.Executor is a Pool that NewPool has not made"},
		{wheel.Config{Executor: (*wheel.Pool)(nil)}, "Config.Executor"},
	} {
		w, err := wheel.New(c.config)
		if err == nil {
			w.Stop()
		}
		check(t, w == nil && err != nil && strings.HasPrefix(err.Error(), "wheel: ") && strings.Contains(err.Error(), c.says),
			"New(%+v): %v; want an error that says %q", c.config, err, c.says)
	}
}

// The longest tick and the most buckets are accepted.
func TestLargestConfig(t *testing.T) {
	w, err := wheel.New(wheel.Config{Tick: time.Hour, Buckets: 1 << 20})
	check(t, err == nil, "New: %v", err)
	w.Stop()
}

// A wheel without a logger of its own has the default one, and the default tick.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := must(wheel.New(wheel.Config{}))
		h := must(w.Schedule(time.Hour, none))
		check(t, w.Tick() == wheel.DefaultTick, "the tick is %v", w.Tick())
		check(t, w.Log() == slog.Default(), "its warnings go elsewhere")
		w.Stop()
		check(t, !h.Cancel(), "cancelled after Stop")
	})
}
