//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A signal ends the wait for a server.
func TestRunIsInterruptedInAnOutage(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	server.Kill()
	p := start(t, env, run("job", sh("echo ran"))...)
	p.awaitError("; waiting for it")
	p.signal(unix.SIGTERM)
	assert.Equal(t, exitSignal+int(unix.SIGTERM), p.wait())
}
