//go:build real && unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A short job that cron starts on machines whose clocks differ runs once: its lock stays
// taken although run has exited, whatever kind of lock it is and whether the job succeeded.
func TestRunHoldsAtLeast(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"mutex": nil, "fair": {"--fair"}, "permits": {"--permits", "1"}, "plain": {"--format", "plain"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, env := onServer(t, redistest.Config{})
			run := func(script string, more ...string) []string {
				return run("job", sh(script), append(more, append(flags, "--hold-at-least", "4s")...)...)
			}
			begin := time.Now()
			p := start(t, env, run("echo ran; exit 3")...)
			assert.Equal(t, 3, p.wait())
			assert.Equal(t, "ran\n", p.stdout.String())
			late := start(t, env, run("echo twice", "-w", "2s", "-E", "0")...)
			assert.Equal(t, 0, late.wait())
			if time.Since(begin) < 4*time.Second { // the machine has not stalled
				assert.Empty(t, late.stdout.String())
			}
			next := start(t, env, run("echo later", "-w", "30s")...)
			assert.Equal(t, 0, next.wait())
			assert.Equal(t, "later\n", next.stdout.String())
			assert.GreaterOrEqual(t, time.Since(begin), 4*time.Second)
		})
	}
}
