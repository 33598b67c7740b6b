package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// On a terminal a waiting run shows who holds the lock, and clears the line before the
// command prints.
func TestRunShowsThatItWaits(t *testing.T) {
	server, env := onServer(t, redistest.Config{})
	client := server.Client(t)
	require.NoError(t, client.HSet(t.Context(), "job", java+":1", 1).Err())
	require.NoError(t, client.PExpire(t.Context(), "job", time.Hour).Err())
	c := openConsole(t, env, run("job", sh("echo mine"))...)
	// The echo of a key ends the line that is repainted. A terminal keeps 4,096 keys that are
	// not read, and echoes no more.
	press := time.NewTicker(50 * time.Millisecond)
	defer press.Stop()
	begin := time.Now()
	for shown := ""; !strings.Contains(shown, "held by"); {
		require.Less(t, time.Since(begin), patience, "no line")
		select {
		case shown = <-c.lines:
		case <-press.C:
			c.press("\n")
		}
		if strings.Contains(shown, "held by") {
			assert.Regexp(t, `waiting \d+s for job, held by `+java+`:1`, shown)
		}
	}
	require.NoError(t, client.Del(t.Context(), "job").Err())
	require.NoError(t, client.Publish(t.Context(), "redisson_lock__channel:{job}", 0).Err())
	c.await(clearLine + "mine")
	c.await("exit 0")
}

// Elsewhere nothing is shown.
func TestRunWaitsInSilenceElsewhere(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client := server.Client(t)
	require.NoError(t, client.HSet(t.Context(), "job", java+":1", 1).Err())
	p := start(t, env, run("job", sh("true"), "-w", "300ms")...)
	assert.Equal(t, exitNotAcquired, p.wait())
	p.requireOneLine("not acquired")
}

func TestWaitingLine(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	now := begin.Add(61500 * time.Millisecond)
	for want, test := range map[string]struct {
		name string
		h    holding
	}{
		"waiting 1m1s for job":                                        {"job", holding{}},
		"waiting 1m1s for job, held by x for 2m1s":                    {"job", holding{owner: "x", since: begin.Add(-time.Minute)}},
		"waiting 1m1s for job, held by x +2":                          {"job", holding{owner: "x", more: 2}},
		"waiting 1m1s for job, held by x for 0s":                      {"job", holding{owner: "x", since: now.Add(time.Hour)}},
		`waiting 1m1s for "evil\u202e\x1b[2J", held by y` + " for 1s": {"evil\u202e\x1b[2J", holding{owner: "y", since: now.Add(-1500 * time.Millisecond)}},
	} {
		assert.Equal(t, want, waitingLine(test.name, begin, now, test.h))
	}
}
