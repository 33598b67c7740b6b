//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// deaf is a script that ignores SIGTERM. It prints its process id.
const deaf = `trap '' TERM; echo $$; while :; do sleep 0.02; done`

// forceOpen deletes the lock of a holder.
func forceOpen(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	deleted, err := server.Client(t).Del(commandtest.Bounded(t), name).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted)
}

// The lock was gone when the command had ended, since an unknown instant.
func TestRunFindsTheLockGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	p := holder(t, env) // the next renewal is far away
	forceOpen(t, server, "job")
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, exit.Lost, p.Wait())
	p.RequireReport(`lock "job" was lost while the command ran`)
}

// The command has done its work under a valid lease; only the release failed.
func TestRunCannotRelease(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, append(env, requestsTake+"=2s"), runLock("job", sh("echo held; cat; exit 4"))...)
	require.Equal(t, "held", p.Line())
	server.Kill()
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, 4, p.Wait())
	p.RequireReport("was not released")
	assert.Contains(t, p.Stderr.String(), `the store frees "job" within its TTL of 1h0m0s`)
	assert.NotContains(t, p.Stderr.String(), "background", "the process ends")
}

// A leasewheel that is killed cannot end its command. The kernel does, if the system
// supports it.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux sends a signal to orphans")
	}
	_, env := commandtest.OnServer(t, redistest.Config{})
	for action, script := range map[string]string{
		"term": `trap 'echo terminated >"$0"; exit' TERM; echo $$; while :; do sleep 0.02; done`,
		"kill": deaf,
	} {
		t.Run(action, func(t *testing.T) {
			note := filepath.Join(t.TempDir(), "note")
			p := commandtest.Start(t, env, runLock(action, []string{"--", "sh", "-c", script, note}, "--on-lost", action)...)
			pid := p.PIDLine()
			require.NoError(t, p.Cmd.Process.Kill())
			commandtest.Eventually(t, "gone", func() bool { return commandtest.Gone(pid) })
			if action == "term" {
				text, err := os.ReadFile(note)
				require.NoError(t, err)
				assert.Equal(t, "terminated\n", string(text))
			}
		})
	}
}
