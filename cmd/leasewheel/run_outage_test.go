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

// With -n, run does not wait for a server that is dead or does not answer.
func TestRunWithoutWaitingAnswers(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"dead": (*redistest.Server).Kill,
		"mute": (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			server, env := onServer(t, redistest.Config{})
			fail(server) // a paused one is killed in the end, too
			p := call(t, env, run("job", sh("echo ran"), "-n", "-E", "0")...)
			assert.Equal(t, exitUnavailable, p.wait())
			p.requireOneLine("no answer")
		})
	}
}
