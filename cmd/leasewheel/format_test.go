//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A lock in the plain format is a string, as of redsync and redislock; each command finds
// it in that format only.
func TestPlainFormat(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client := server.Client(t)
	plain := []string{"--format", "plain"}
	victim := start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_OWNER; cat"), plain...)...)
	owner := victim.line()
	value, err := client.Get(t.Context(), "job").Result()
	require.NoError(t, err)
	assert.Equal(t, owner, value)

	for format, code := range map[string]int{"plain": exitNotAcquired, "redisson": exitNotAcquired} {
		p := call(t, env, run("job", sh("echo ran"), "-n", "--format", format)...)
		assert.Equal(t, code, p.wait(), format)
		p.requireOneLine("job")
		assert.Empty(t, p.stdout.String())
	}
	require.NoError(t, client.Set(t.Context(), "text", "x", 0).Err())
	assert.Empty(t, ask(t, env, exitOK, "ls"))
	assert.Equal(t, "job\n", firstColumn(ask(t, env, exitOK, "ls", "--format", "plain")))
	assert.Contains(t, ask(t, env, exitOK, "inspect", "job"), "a string, which is not a lock of this format")
	assert.Contains(t, ask(t, env, exitOK, "inspect", "--format=plain", "job"), owner)
	requireLockSchema(t, ask(t, env, exitOK, "inspect", "--format=plain", "--json", "job"))

	p := call(t, env, "unlock", "--force", "job")
	assert.Equal(t, exitUnavailable, p.wait())
	p.requireOneLine("left alone")
	assert.Contains(t, ask(t, env, exitOK, "unlock", "--force", "--format", "plain", "job"), "taken from")
	require.NoError(t, victim.stdin.Close())
	assert.Equal(t, exitLost, victim.wait())

	require.NoError(t, client.HSet(t.Context(), "job", "user", "ada").Err())
	p = call(t, env, run("job", sh("echo ran"), append(plain, "-n")...)...)
	assert.Equal(t, exitUnavailable, p.wait(), "a hash that is no lock is in the way")
	p.requireOneLine("job")
}

func TestFormatIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{run("job", sh("echo ran")), {"ls"}, {"inspect", "a"}, {"unlock", "--force", "a"}} {
		p := call(t, nowhere, append([]string{args[0], "--format", "redlock"}, args[1:]...)...)
		assert.Equal(t, exitUsage, p.wait())
		p.requireOneLine(`there is no format "redlock"; accepted are redisson and plain`)
		assert.Empty(t, p.stdout.String())
	}
	p := call(t, nowhere, "inspect", "--format", "plain", "--kind", "permits", "a")
	assert.Equal(t, exitUsage, p.wait())
	p.requireOneLine("no expiring permit in a plain string")
}
