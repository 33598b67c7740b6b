//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// deaf is a script that ignores SIGTERM. It prints its process id.
const deaf = `trap '' TERM; echo $$; while :; do sleep 0.02; done`

// pidLine reads a process id from standard output, and kills that process at the end of
// the test.
func (p *process) pidLine() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.line())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) }) //nolint:errcheck // it is gone if all went well
	return pid
}

// forceOpen deletes the lock of a holder.
func forceOpen(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	deleted, err := server.Client(t).Del(bounded(t), name).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted)
}

// The lock was gone when the command had ended, since an unknown instant.
func TestRunFindsTheLockGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	p := holder(t, env) // the next renewal is far away
	forceOpen(t, server, "job")
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, exitLost, p.wait())
	p.requireReport(`lock "job" was lost while the command ran`)
}

// The command has done its work under a valid lease; only the release failed.
func TestRunCannotRelease(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	p := start(t, env, run("job", sh("echo held; cat; exit 4"), "-n")...)
	require.Equal(t, "held", p.line())
	server.Kill()
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, 4, p.wait())
	p.requireReport("was not released")
	assert.Contains(t, p.stderr.String(), `the store frees "job" within its TTL of 1h0m0s`)
	assert.NotContains(t, p.stderr.String(), "background", "the process ends")
}

// A leasewheel that is killed cannot end its command. The kernel does, if the system
// supports it.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux sends a signal to orphans")
	}
	_, env := onServer(t, redistest.Config{})
	for action, script := range map[string]string{
		"term": `trap 'echo terminated >"$0"; exit' TERM; echo $$; while :; do sleep 0.02; done`,
		"kill": deaf,
	} {
		t.Run(action, func(t *testing.T) {
			note := filepath.Join(t.TempDir(), "note")
			p := start(t, env, run(action, []string{"--", "sh", "-c", script, note}, "--on-lost", action)...)
			pid := p.pidLine()
			require.NoError(t, p.cmd.Process.Kill())
			eventually(t, "gone", func() bool { return gone(pid) })
			if action == "term" {
				text, err := os.ReadFile(note)
				require.NoError(t, err)
				assert.Equal(t, "terminated\n", string(text))
			}
		})
	}
}
