//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A signal ends the wait for a server.
func TestRunIsInterruptedInAnOutage(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	server.Kill()
	p := commandtest.Start(t, append(env, requestsTake+"=1s"), runLock("job", sh("echo ran"))...)
	p.AwaitError("; waiting for it")
	p.Signal(unix.SIGTERM)
	assert.Equal(t, exit.Signal+int(unix.SIGTERM), p.Wait())
}

// With -n, run does not wait for a server that is dead or does not answer.
func TestRunWithoutWaitingAnswers(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"dead": (*redistest.Server).Kill,
		"mute": (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			fail(server) // a paused one is killed in the end, too
			p := commandtest.Call(t, env, runLock("job", sh("echo ran"), "-n", "-E", "0")...)
			assert.Equal(t, exit.Unavailable, p.Wait())
			p.RequireOneLine("no answer")
		})
	}
}
