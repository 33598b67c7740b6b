//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Readers share a name; a writer and a mutex exclude all others, by either spelling of
// the flags.
func TestRunSharesReads(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	excluded := func(flags ...string) {
		t.Helper()
		p := commandtest.Call(t, env, runLock("job", sh("echo ran"), append(flags, "-n")...)...)
		assert.Equal(t, exit.NotAcquired, p.Wait(), "%q", flags)
		assert.Empty(t, p.Stdout.String())
		p.RequireOneLine("not acquired")
	}
	held := holder(t, env, "-s")
	for _, reader := range []string{"--read", "--shared"} {
		p := commandtest.Start(t, env, runLock("job", sh("echo beside"), reader, "-n")...)
		assert.Equal(t, 0, p.Wait())
		assert.Equal(t, "beside\n", p.Stdout.String())
	}
	excluded("-x")
	excluded("--write")
	excluded("--exclusive")
	excluded()
	require.NoError(t, held.Stdin.Close())
	assert.Equal(t, 0, held.Wait())

	held = holder(t, env, "-x")
	excluded("-s")
	excluded("--exclusive")
	excluded()
	require.NoError(t, held.Stdin.Close())
	assert.Equal(t, 0, held.Wait())
}

// Fair locks are granted in the order of arrival.
func TestRunInOrderOfArrival(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	held := holder(t, env, "--fair")
	var waiting []*commandtest.Process
	for i := range 3 {
		waiting = append(waiting, commandtest.Start(t, env, runLock("job", sh("echo $LEASEWHEEL_LOCK_FENCE"), "--fair")...))
		commandtest.Eventually(t, "in the queue", func() bool {
			return client.LLen(t.Context(), "redisson_lock_queue:{job}").Val() == int64(i+1)
		})
	}
	require.NoError(t, held.Stdin.Close())
	last := ""
	for _, p := range waiting {
		assert.Equal(t, 0, p.Wait())
		assert.Greater(t, p.Stdout.String(), last, "its fencing token is larger than that of the one before")
		last = p.Stdout.String()
	}
}

// So many commands run at once as there are permits, and another number is refused.
func TestRunTakesPermits(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	first, second := holder(t, env, "--permits", "2"), holder(t, env, "--permits", "2")
	p := commandtest.Call(t, env, runLock("job", sh("echo ran"), "--permits", "2", "-n")...)
	assert.Equal(t, exit.NotAcquired, p.Wait())
	p.RequireOneLine("not acquired")

	for _, number := range []string{"1", "3"} {
		p = commandtest.Call(t, env, runLock("job", sh("echo ran"), "--permits", number)...)
		assert.Equal(t, exit.Unavailable, p.Wait())
		p.RequireOneLine("has 2 permits, not " + number)
	}

	waiting := commandtest.Start(t, env, runLock("job", sh("echo ran"), "--permits", "2", "-v")...)
	waiting.AwaitError("waiting for lock")
	require.NoError(t, first.Stdin.Close())
	assert.Equal(t, 0, waiting.Wait())
	assert.Equal(t, "ran\n", waiting.Stdout.String())
	require.NoError(t, second.Stdin.Close())
	assert.Equal(t, 0, second.Wait())
	assert.Equal(t, 0, first.Wait())
	assert.Equal(t, "2", server.Client(t).Get(t.Context(), "job").Val(), "all permits are available again")
}

// A waiting run creates a semaphore that disappears with its server's data.
func TestRunOutlivesItsSemaphore(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string][]string{"without a limit": nil, "with one": {"-w", "1h"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			client := server.Client(t)
			held := holder(t, env, "--permits", "1")
			waiting := commandtest.Start(t, env, runLock("job", sh("echo ran"), append(limit, "--permits", "1")...)...)
			commandtest.Eventually(t, "subscribed", func() bool {
				return client.PubSubNumSub(t.Context(), "redisson_sc:{job}").Val()["redisson_sc:{job}"] > 0
			})
			require.NoError(t, client.FlushAll(t.Context()).Err())
			assert.Equal(t, 0, waiting.Wait())
			assert.Equal(t, "ran\n", waiting.Stdout.String())
			require.NoError(t, held.Stdin.Close())
			assert.Equal(t, exit.Lost, held.Wait())
		})
	}
}

// A name that is in use by something else is refused at once, also without -n.
func TestRunOnAKeyThatIsNoSemaphore(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	for name, make := range map[string]func() error{
		"hash":   func() error { return client.HSet(t.Context(), "job", "a", "b").Err() },
		"string": func() error { return client.Set(t.Context(), "job", "a text", 0).Err() },
	} {
		require.NoError(t, client.Del(t.Context(), "job").Err())
		require.NoError(t, make())
		p := commandtest.Call(t, env, runLock("job", sh("echo ran"), "--permits", "2")...)
		assert.Equal(t, exit.Unavailable, p.Wait(), name)
		assert.Empty(t, p.Stdout.String())
		p.RequireOneLine(`"job"`)
	}
}

// Durations are those of Go, with days, or seconds.
func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "2.5": 2500 * time.Millisecond, "1m30s": 90 * time.Second,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "1d1ms": day + time.Millisecond, "0d": 0,
	} {
		var d duration.Flag
		require.NoError(t, d.Set(text), text)
		assert.Equal(t, want, time.Duration(d), text)
	}
	for _, text := range []string{
		"", "d", "1dd", "1d-1h", "1d+1h", "1h1d", "-1d", "-5", "NaN", "NaNd", "Inf", "1e300", "1e300d", "106752d", "106751d24h", "1d soon", "day",
	} {
		d := duration.Flag(time.Second)
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
		p := commandtest.Call(t, commandtest.Nowhere, runLock("job", sh("echo ran"), flags...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		assert.Contains(t, p.Stderr.String(), text)
	}
}

// A short job that cron starts on machines whose clocks differ runs once: its lock stays
// taken although run has exited, whatever kind of lock it is and whether the job succeeded.
func TestRunHoldsAtLeast(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"mutex": nil, "fair": {"--fair"}, "permits": {"--permits", "1"}, "plain": {"--format", "plain"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			client := server.Client(t)
			flags = append(flags, "--hold-at-least", "2h")
			p := commandtest.Start(t, env, runLock("job", sh("echo ran; exit 3"), flags...)...)
			assert.Equal(t, 3, p.Wait())
			assert.Equal(t, "ran\n", p.Stdout.String())
			late := commandtest.Call(t, env, runLock("job", sh("echo twice"), append(flags, "-n", "-E", "0")...)...)
			assert.Equal(t, 0, late.Wait())
			assert.Empty(t, late.Stderr.String())
			if name != "permits" { // whose ends are not those of a key
				assert.Greater(t, client.PTTL(t.Context(), "job").Val(), time.Hour)
			}
		})
	}
}
