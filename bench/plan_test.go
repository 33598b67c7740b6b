package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlanRefusesWhatMakesNoSense(t *testing.T) {
	const day = 24 * time.Hour
	good := Plan{Timeouts: 1, MinDelay: time.Millisecond, MaxDelay: time.Second, Duration: time.Second}
	for _, tt := range []struct {
		name   string
		change func(*Plan)
		says   string // "" means accepted
	}{
		{"good", func(p *Plan) {}, ""},
		{"no timeouts", func(p *Plan) { p.Timeouts = 0 }, "timeouts must be 1 to 10000000, got 0"},
		{"negative timeouts", func(p *Plan) { p.Timeouts = -1 }, "got -1"},
		{"too many timeouts", func(p *Plan) { p.Timeouts = maxTimeouts + 1 }, "got 10000001"},
		{"most timeouts", func(p *Plan) { p.Timeouts = maxTimeouts }, ""},
		{"no delay", func(p *Plan) { p.MinDelay, p.MaxDelay = 0, 0 }, ""},
		{"negative delay", func(p *Plan) { p.MinDelay = -1 }, "delays must be a range within 0s to 24h0m0s, got -1ns to 1s"},
		{"delays reversed", func(p *Plan) { p.MinDelay = 2 * time.Second }, "got 2s to 1s"},
		{"enormous delay", func(p *Plan) { p.MaxDelay = day + 1 }, "got 1ms to 24h0m0.000000001s"},
		{"greatest delay", func(p *Plan) { p.MaxDelay = 1<<63 - 1 }, "delays must be"},
		{"one-shot without duration", func(p *Plan) { p.Duration = -1 }, ""},
		{"periodic", func(p *Plan) { p.Mode = Periodic }, ""},
		{"no period", func(p *Plan) { p.Mode, p.MinDelay = Periodic, 0 }, "periods must be at least 1µs, got 0s"},
		{"short duration", func(p *Plan) { p.Mode, p.Duration = Rearmed, 1 }, "duration must be between the longest period, 1s, and 24h0m0s, got 1ns"},
		{"enormous duration", func(p *Plan) { p.Mode, p.Duration = Rearmed, day+1 }, "duration must be"},
		{"too many runs", func(p *Plan) {
			p.Mode, p.Timeouts, p.MinDelay, p.Duration = Periodic, maxTimeouts, time.Microsecond, day
		}, "at most 20000000 runs are measured at once"},
		{"unknown mode", func(p *Plan) { p.Mode = 99 }, "mode must be"},
		{"unknown load", func(p *Plan) { p.Load = 99 }, "load must be"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := good
			tt.change(&p)
			err := p.Validate()
			if tt.says == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.says)
			}
		})
	}
}

func TestDelaysAreWithinBoundsAndRepeatable(t *testing.T) {
	p := Plan{Timeouts: 1000, MinDelay: 5, MaxDelay: 7, Seed: 1}
	seen := map[time.Duration]bool{}
	for _, d := range p.delays() {
		seen[d] = true
	}
	assert.Equal(t, map[time.Duration]bool{5: true, 6: true, 7: true}, seen)
	assert.Equal(t, p.delays(), p.delays())
	other := p
	other.Seed = 2
	assert.NotEqual(t, p.delays(), other.delays())
}

func TestNamesOfModesAndLoadsAreReadBack(t *testing.T) {
	for _, mode := range []Mode{OneShot, Periodic, Rearmed} {
		read, err := ParseMode(mode.String())
		assert.NoError(t, err)
		assert.Equal(t, mode, read)
	}
	for _, load := range []Load{Idle, Busy, GC} {
		read, err := ParseLoad(load.String())
		assert.NoError(t, err)
		assert.Equal(t, load, read)
	}
	_, err := ParseMode("often")
	assert.EqualError(t, err, `mode must be one-shot, periodic or re-armed, got "often"`)
	_, err = ParseLoad("")
	assert.EqualError(t, err, `load must be idle, busy or gc, got ""`)
}
