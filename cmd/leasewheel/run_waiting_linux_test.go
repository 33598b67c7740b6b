package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Elsewhere nothing is shown.
func TestRunWaitsInSilenceElsewhere(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	require.NoError(t, client.HSet(t.Context(), "job", java+":1", 1).Err())
	p := commandtest.Start(t, env, run("job", sh("true"), "-w", "300ms")...)
	assert.Equal(t, exit.NotAcquired, p.Wait())
	p.RequireOneLine("not acquired")
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
