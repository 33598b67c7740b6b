//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Readers share a name; a writer and a mutex exclude all others, by either spelling of
// the flags.
func TestRunSharesReads(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	excluded := func(flags ...string) {
		t.Helper()
		p := call(t, env, run("job", sh("echo ran"), append(flags, "-n")...)...)
		assert.Equal(t, exitNotAcquired, p.wait(), "%q", flags)
		assert.Empty(t, p.stdout.String())
		p.requireOneLine("not acquired")
	}
	held := holder(t, env, "-s")
	for _, reader := range []string{"--read", "--shared"} {
		p := start(t, env, run("job", sh("echo beside"), reader, "-n")...)
		assert.Equal(t, 0, p.wait())
		assert.Equal(t, "beside\n", p.stdout.String())
	}
	excluded("-x")
	excluded("--write")
	excluded("--exclusive")
	excluded()
	require.NoError(t, held.stdin.Close())
	assert.Equal(t, 0, held.wait())

	held = holder(t, env, "-x")
	excluded("-s")
	excluded("--exclusive")
	excluded()
	require.NoError(t, held.stdin.Close())
	assert.Equal(t, 0, held.wait())
}

// Fair locks are granted in the order of arrival.
func TestRunInOrderOfArrival(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client := server.Client(t)
	held := holder(t, env, "--fair")
	var waiting []*process
	for i := range 3 {
		waiting = append(waiting, start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_FENCE"), "--fair")...))
		eventually(t, "in the queue", func() bool {
			return client.LLen(t.Context(), "redisson_lock_queue:{job}").Val() == int64(i+1)
		})
	}
	require.NoError(t, held.stdin.Close())
	last := ""
	for _, p := range waiting {
		assert.Equal(t, 0, p.wait())
		assert.Greater(t, p.stdout.String(), last, "its fencing token is larger than that of the one before")
		last = p.stdout.String()
	}
}

// So many commands run at once as there are permits, and another number is refused.
func TestRunTakesPermits(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	first, second := holder(t, env, "--permits", "2"), holder(t, env, "--permits", "2")
	p := call(t, env, run("job", sh("echo ran"), "--permits", "2", "-n")...)
	assert.Equal(t, exitNotAcquired, p.wait())
	p.requireOneLine("not acquired")

	for _, number := range []string{"1", "3"} {
		p = call(t, env, run("job", sh("echo ran"), "--permits", number)...)
		assert.Equal(t, exitUnavailable, p.wait())
		p.requireOneLine("has 2 permits, not " + number)
	}

	waiting := start(t, env, run("job", sh("echo ran"), "--permits", "2", "-v")...)
	waiting.awaitError("waiting for lock")
	require.NoError(t, first.stdin.Close())
	assert.Equal(t, 0, waiting.wait())
	assert.Equal(t, "ran\n", waiting.stdout.String())
	require.NoError(t, second.stdin.Close())
	assert.Equal(t, 0, second.wait())
	assert.Equal(t, 0, first.wait())
	assert.Equal(t, "2", server.Client(t).Get(t.Context(), "job").Val(), "all permits are available again")
}

// A waiting run creates a semaphore that disappears with its server's data.
func TestRunOutlivesItsSemaphore(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string][]string{"without a limit": nil, "with one": {"-w", "1h"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := onServer(t, redistest.Config{})
			client := server.Client(t)
			held := holder(t, env, "--permits", "1")
			waiting := start(t, env, run("job", sh("echo ran"), append(limit, "--permits", "1")...)...)
			eventually(t, "subscribed", func() bool {
				return client.PubSubNumSub(t.Context(), "redisson_sc:{job}").Val()["redisson_sc:{job}"] > 0
			})
			require.NoError(t, client.FlushAll(t.Context()).Err())
			assert.Equal(t, 0, waiting.wait())
			assert.Equal(t, "ran\n", waiting.stdout.String())
			require.NoError(t, held.stdin.Close())
			assert.Equal(t, exitLost, held.wait())
		})
	}
}

// A name that is in use by something else is refused at once, also without -n.
func TestRunOnAKeyThatIsNoSemaphore(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client := server.Client(t)
	for name, make := range map[string]func() error{
		"hash":   func() error { return client.HSet(t.Context(), "job", "a", "b").Err() },
		"string": func() error { return client.Set(t.Context(), "job", "a text", 0).Err() },
	} {
		require.NoError(t, client.Del(t.Context(), "job").Err())
		require.NoError(t, make())
		p := call(t, env, run("job", sh("echo ran"), "--permits", "2")...)
		assert.Equal(t, exitUnavailable, p.wait(), name)
		assert.Empty(t, p.stdout.String())
		p.requireOneLine(`"job"`)
	}
}

// Durations are those of Go, with days, or seconds.
func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "2.5": 2500 * time.Millisecond, "1m30s": 90 * time.Second,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "1d1ms": day + time.Millisecond, "0d": 0,
	} {
		var d durationFlag
		require.NoError(t, d.Set(text), text)
		assert.Equal(t, want, time.Duration(d), text)
	}
	for _, text := range []string{
		"", "d", "1dd", "1d-1h", "1d+1h", "1h1d", "-1d", "-5", "NaN", "NaNd", "Inf", "1e300", "1e300d", "106752d", "106751d24h", "1d soon", "day",
	} {
		d := durationFlag(time.Second)
		require.Error(t, d.Set(text), text)
		assert.Equal(t, time.Second, time.Duration(d), text)
	}
}

func TestRunRefusesHoldsThatContradict(t *testing.T) {
	t.Parallel()
	for text, flags := range map[string][]string{
		"--hold-at-least 1m0s is longer than --max-hold 10s": {"--hold-at-least", "1m", "--max-hold", "10s"},
		"--hold-at-least 9600h0m0s: accepted are up to":      {"--hold-at-least", "400d"},
		"--hold-at-least is not for --read and --write":      {"--hold-at-least", "1m", "-s"},
	} {
		p := call(t, nowhere, run("job", sh("echo ran"), flags...)...)
		assert.Equal(t, exitUsage, p.wait())
		assert.Contains(t, p.stderr.String(), text)
	}
}

// A short job that cron starts on machines whose clocks differ runs once: its lock stays
// taken although run has exited, whatever kind of lock it is and whether the job succeeded.
func TestRunHoldsAtLeast(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"mutex": nil, "fair": {"--fair"}, "permits": {"--permits", "1"}, "plain": {"--format", "plain"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := onServer(t, redistest.Config{})
			client := server.Client(t)
			flags = append(flags, "--hold-at-least", "2h")
			p := start(t, env, run("job", sh("echo ran; exit 3"), flags...)...)
			assert.Equal(t, 3, p.wait())
			assert.Equal(t, "ran\n", p.stdout.String())
			late := call(t, env, run("job", sh("echo twice"), append(flags, "-n", "-E", "0")...)...)
			assert.Equal(t, 0, late.wait())
			late.requireOneLine("not acquired")
			if name != "permits" { // whose ends are not those of a key
				assert.Greater(t, client.PTTL(t.Context(), "job").Val(), time.Hour)
			}
		})
	}
}
