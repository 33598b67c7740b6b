//go:build unix

package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A key that is not a lock never counts as a holder, with or without a TTL: run fails and
// names the key's type, even if a conflict is fine (-E 0) or is waited for.
func TestRunFailsOnAKeyThatIsNotALock(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	commands(t, client, `
		SET text x
		HSET session:7 user ada
		HSET expiring user ada
		PEXPIRE expiring 600000
		HSET basket sku:1 2
		RPUSH list a
		SADD set a
		ZADD zset 1 a
		XADD stream * a b
	`)
	for name, kind := range map[string]string{
		"text": "a string without a TTL", "session:7": "a hash", "expiring": "a hash", "basket": "a hash",
		"list": "a list", "set": "a set", "zset": "a zset", "stream": "a stream",
	} {
		for _, flags := range [][]string{{"-n", "-E", "0"}, {"-w", "10s", "-E", "0"}, nil, {"--format", "plain", "-n", "-E", "0"}} {
			t.Run(name+" "+strings.Join(flags, " "), func(t *testing.T) {
				p := commandtest.Call(t, env, runLock(name, sh("echo ran"), flags...)...)
				assert.Equal(t, exit.Unavailable, p.Wait())
				p.RequireOneLine("the key of this name is " + kind + ", not a lock")
				assert.Empty(t, p.Stdout.String())
			})
		}
	}
}

// A lock of the other format is a holder like any other, which -E 0 does not conceal: the clients of
// one lock must have one format.
func TestRunRespectsLocksOfTheOtherFormat(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client, ctx := server.Client(t), commandtest.Bounded(t)
	require.NoError(t, client.Set(ctx, "plain", "of redsync's", time.Minute).Err())
	locker, _ := newTestLocker(t, server.Client(t))
	_, err := locker.Mutex("redisson").Lock(ctx)
	require.NoError(t, err)
	for _, code := range []int{3, 0} {
		for _, args := range [][]string{
			runLock("plain", sh("echo ran"), "-n", "-E", strconv.Itoa(code)),
			runLock("redisson", sh("echo ran"), "-n", "-E", strconv.Itoa(code), "--format", "plain"),
		} {
			p := commandtest.Call(t, env, args...)
			assert.Equal(t, code, p.Wait())
			p.RequireOneLine("another family of locks")
			assert.Empty(t, p.Stdout.String())
		}
	}
}

// A user with only the rights of a mutex gets as much detail as its rights allow.
func TestRunFailsOnAForeignKeyWithTheLeastRights(t *testing.T) {
	t.Parallel()
	rules := leastUser(t)
	server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
	commands(t, server.Client(t), `
		SET orders:text x
		HSET orders:session user ada
		SET orders:lock other PX 600000
	`)
	_, path := server.Addr()
	env := []string{connect.URLVariable + "=unix://" + rules[0] + ":secret@" + path}
	for name, test := range map[string]struct {
		code int
		says string
	}{
		"orders:text":    {exit.Unavailable, "a string without a TTL, not a lock"},
		"orders:session": {exit.Unavailable, "a value other than a string, not a lock"},
		"orders:lock":    {0, "another family of locks"},
	} {
		p := commandtest.Call(t, env, runLock(name, sh("echo ran"), "-n", "-E", "0")...)
		assert.Equal(t, test.code, p.Wait(), name)
		p.RequireOneLine(test.says)
		assert.Empty(t, p.Stdout.String())
	}
}

// Only keys that the store reports as foreign are examined.
func TestForeign(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	client := redis.NewClient(server.Options())
	defer client.Close()
	commands(t, client, "HSET session:7 user ada")
	n := connect.Servers{{Client: client}}
	err := n.Foreign(t.Context(), "session:7", &lock.NotAcquiredError{Name: "session:7", TTL: time.Second, Foreign: true})
	require.ErrorIs(t, err, lock.ErrForeign)
	assert.EqualError(t, err, "lock session:7: the key of this name is a hash, not a lock: choose another name, or delete the key if nothing needs it")
	held := &lock.NotAcquiredError{Name: "session:7", TTL: time.Second}
	assert.Equal(t, error(held), n.Foreign(t.Context(), "session:7", held), "a holder is not looked at")
	assert.Equal(t, lock.ErrClosed, n.Foreign(t.Context(), "session:7", lock.ErrClosed))
}
