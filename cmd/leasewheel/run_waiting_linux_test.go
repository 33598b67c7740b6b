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
	assert.Regexp(t, `waiting \d+s for job, held by `+java+`:1`, waitingShown(c, "held by"))
	require.NoError(t, client.Del(t.Context(), "job").Err())
	require.NoError(t, client.Publish(t.Context(), "redisson_lock__channel:{job}", 0).Err())
	c.await(clearLine + "mine")
	c.await("exit 0")
}

// waitingShown returns the first line with that text that a waiting run repaints. The echo
// of a key ends it. A terminal keeps 4,096 keys that are not read, and echoes no more.
func waitingShown(c *console, text string) string {
	press := time.NewTicker(50 * time.Millisecond)
	defer press.Stop()
	begin := time.Now()
	for shown := ""; ; {
		require.Less(c.t, time.Since(begin), patience, "no line")
		select {
		case shown = <-c.lines:
		case <-press.C:
			c.press("\n")
		}
		if strings.Contains(shown, text) {
			return shown
		}
	}
}

// Permits have no owners; their number is shown.
func TestRunShowsThatItWaitsForAPermit(t *testing.T) {
	_, env := onServer(t, redistest.Config{})
	holder := start(t, env, run("job", sh("echo held; cat"), "--permits", "1")...)
	require.Equal(t, "held", holder.line())
	c := openConsole(t, env, run("job", sh("echo mine"), "--permits", "1")...)
	assert.Regexp(t, `waiting \d+s for job, permits in use: 1`, waitingShown(c, "in use"))
	require.NoError(t, holder.stdin.Close())
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
		"waiting 1m1s for job, permits in use: 1,234":                 {"job", holding{inUse: 1234}},
		`waiting 1m1s for "evil\u202e\x1b[2J", held by y` + " for 1s": {"evil\u202e\x1b[2J", holding{owner: "y", since: now.Add(-1500 * time.Millisecond)}},
	} {
		assert.Equal(t, want, waitingLine(test.name, begin, now, test.h))
	}
}
