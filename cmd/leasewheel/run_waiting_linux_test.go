package main

import (
	"testing"

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
	p := commandtest.Start(t, env, runLock("job", sh("true"), "-w", "300ms")...)
	assert.Equal(t, exit.NotAcquired, p.Wait())
	p.RequireOneLine("not acquired")
}
