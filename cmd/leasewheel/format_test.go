//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A lock in the plain format is a string, as of redsync and redislock; each command finds
// it in that format only.
func TestPlainFormat(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	plain := []string{"--format", "plain"}
	victim := commandtest.Start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_OWNER; cat"), plain...)...)
	owner := victim.Line()
	value, err := client.Get(t.Context(), "job").Result()
	require.NoError(t, err)
	assert.Equal(t, owner, value)

	for format, code := range map[string]int{"plain": exit.NotAcquired, "redisson": exit.NotAcquired} {
		p := commandtest.Call(t, env, run("job", sh("echo ran"), "-n", "--format", format)...)
		assert.Equal(t, code, p.Wait(), format)
		p.RequireOneLine("job")
		assert.Empty(t, p.Stdout.String())
	}
	require.NoError(t, client.Set(t.Context(), "text", "x", 0).Err())
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "ls"))
	assert.Equal(t, "job\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "ls", "--format", "plain")))
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "inspect", "job"), "a string, which is not a lock of this format")
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "inspect", "--format=plain", "job"), owner)
	requireLockSchema(t, commandtest.Ask(t, env, exit.OK, "inspect", "--format=plain", "--json", "job"))

	p := commandtest.Call(t, env, "unlock", "--force", "job")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("left alone")
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "unlock", "--force", "--format", "plain", "job"), "taken from")
	require.NoError(t, victim.Stdin.Close())
	assert.Equal(t, exit.Lost, victim.Wait())

	require.NoError(t, client.HSet(t.Context(), "job", "user", "ada").Err())
	p = commandtest.Call(t, env, run("job", sh("echo ran"), append(plain, "-n")...)...)
	assert.Equal(t, exit.Unavailable, p.Wait(), "a hash that is no lock is in the way")
	p.RequireOneLine("job")
}

func TestFormatIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{run("job", sh("echo ran")), {"ls"}, {"inspect", "a"}, {"unlock", "--force", "a"}} {
		p := commandtest.Call(t, commandtest.Nowhere, append([]string{args[0], "--format", "redlock"}, args[1:]...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine(`there is no format "redlock"; accepted are redisson and plain`)
		assert.Empty(t, p.Stdout.String())
	}
	p := commandtest.Call(t, commandtest.Nowhere, "inspect", "--format", "plain", "--kind", "permits", "a")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("no expiring permit in a plain string")
}
