//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestWatchPrintsALineForEachRefresh(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	locks(t, server.Client(t))
	text := commandtest.Ask(t, env, exit.OK, "watch", "-n", "2", "-i", "100ms")
	assert.Regexp(t, `^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  5 locks, 2 waiters\n){2}$`, text)
	assert.Regexp(t, `^\S+  2 locks, 0 waiters\n$`, commandtest.Ask(t, env, exit.OK, "watch", "-n", "1", "orders:*"))
	assert.Regexp(t, `^\S+  1 lock, 0 waiters\n$`, commandtest.Ask(t, env, exit.OK, "watch", "-n", "1", "orders:42"))
}

// document reads a line of watch --json.
func document(t *testing.T, line string) (report refreshReport) {
	t.Helper()
	var raw struct{ Locks []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(line), &raw), line)
	for _, lock := range raw.Locks {
		requireLockSchema(t, string(lock))
	}
	var any any
	require.NoError(t, json.Unmarshal([]byte(line), &any))
	require.Empty(t, commandtest.ReadSchema(t, "watch").Faults("", any), line)
	require.NoError(t, json.Unmarshal([]byte(line), &report))
	return report
}

func TestWatchJSON(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	p := commandtest.Start(t, env, "watch", "--json", "-i", "100ms")
	assert.Empty(t, document(t, p.Line()).Locks)
	locks(t, client)
	var report refreshReport
	for len(report.Locks) < 5 {
		report = document(t, p.Line())
	}
	assert.Equal(t, "evil\u202e\u2028name", report.Locks[0].Name, "by name")
	assert.Equal(t, "web-1", report.Locks[2].Holders[0].Client.Host)
	assert.Empty(t, report.Failures)
	assert.NotContains(t, p.Stdout.String(), "\u202e")
	require.NoError(t, client.Del(t.Context(), "orders:42").Err())
	for len(report.Locks) == 5 {
		report = document(t, p.Line())
	}
	p.Signal(syscall.SIGINT)
	assert.Equal(t, exit.OK, p.Wait())
	assert.Empty(t, p.Stderr.String())
}

// An outage of the server is in the refreshes, which go on, and then list its locks again.
func TestWatchSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"--json", "--json=false"} {
		t.Run(form, func(t *testing.T) {
			server, env := commandtest.OnServer(t, redistest.Config{AOF: true})
			locks(t, server.Client(t))
			p := commandtest.Start(t, env, "watch", form, "-i", "100ms")
			await := func(text string) {
				t.Helper()
				for !strings.Contains(p.Line(), text) {
				}
			}
			there := map[string]string{"--json": `"name":"orders:42"`, "--json=false": "  5 locks"}[form]
			await(there)
			server.Kill()
			await("server ")
			server.Restart(t)
			await(there)
			p.Signal(syscall.SIGTERM)
			assert.Equal(t, exit.OK, p.Wait())
			assert.Empty(t, p.Stderr.String())
		})
	}
}

// With a count, a failure of the last refresh is the exit code.
func TestWatchReportsTheLastFailure(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	server.Kill()
	p := commandtest.Call(t, env, "watch", "-n", "1")
	assert.Equal(t, exit.Unavailable, p.Wait())
	assert.Contains(t, p.Stdout.String(), "server ")
	p.RequireOneLine("server ")
}

// The servers that answer are listed beside one that does not.
func TestWatchSeveralServers(t *testing.T) {
	t.Parallel()
	args := []string{"watch", "--json", "-n", "1"}
	var servers []*redistest.Server
	for range 3 {
		server := redistest.Start(t, redistest.Config{})
		commands(t, server.Client(t), "HSET orders:42 "+java+":1 1")
		servers = append(servers, server)
		args = append(args, "--redis", server.URL())
	}
	servers[1].Kill()
	p := commandtest.Call(t, nil, args...)
	assert.Equal(t, exit.Unavailable, p.Wait())
	report := document(t, p.Stdout.String())
	assert.Len(t, report.Locks, 2)
	require.Len(t, report.Failures, 1)
	_, address := servers[1].Addr()
	assert.Equal(t, address, report.Failures[0].Server)
}

// A failure that no later refresh would mend ends the command.
func TestWatchEndsWithAPermanentError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Password: commandtest.Secret})
	_, path := server.Addr()
	p := commandtest.Call(t, []string{connect.URLVariable + "=unix://" + path}, "watch")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("server ")
	assert.Empty(t, p.Stdout.String())
}

func TestWatchArguments(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	for text, args := range map[string][]string{
		"one PATTERN":      {"a", "b"},
		"--interval 99ms":  {"-i", "99ms"},
		"--count -1":       {"-n", "-1"},
		"pattern \"[a\"":   {"[a"},
		"--redis and --re": {"--redis-file", "x"},
	} {
		p := commandtest.Call(t, nil, append([]string{"watch", "--redis", server.URL()}, args...)...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine(text)
	}
}

// A reader that closes the pipe ends the command.
func TestWatchIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
		cmd.Args = []string{"/bin/sh", "-c", `"$0" watch -i 100ms | head -n 1 | wc -l`, cmd.Path}
		cmd.Path = "/bin/sh"
	})
	assert.Equal(t, "1", strings.TrimSpace(p.Line()))
	assert.Equal(t, 0, p.Wait())
}

// screenOf returns the lines of a refresh of locks with the names.
func screenOf(width, height int, names ...string) []string {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	v := viewed{at: at}
	for i, name := range names {
		v.locks = append(v.locks, lock.Info{
			Name: name, HolderCount: 1, WaiterCount: int64(i), TTL: 27300 * time.Millisecond,
			Holders: []lock.Holder{{Owner: java + ":1", Since: at.Add(-3 * time.Second)}},
		})
	}
	r := &refresh{at: at, views: []viewed{v}}
	return r.lines(width, height, 2*time.Second)
}

func TestScreenLines(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{
		"12:00:00  every 2s  2 locks, 1 waiter",
		"",
		"NAME    KIND   HOLDER                                  HELD  TTL  WAITERS",
		"second  mutex  285475da-9152-4c83-822a-67ee2f116a79:1  3s    27s  1",
		"first   mutex  285475da-9152-4c83-822a-67ee2f116a79:1  3s    27s  0",
	}, screenOf(80, 24, "first", "second"))
	assert.Equal(t, "a-very-long-na…  mutex  285475da-9152-4…  3s    27s  0", screenOf(60, 24, "a-very-long-name-that-is-longer-than-its-column")[3])
}

// On a narrow terminal columns go, before names and owners become unreadable.
func TestScreenOfANarrowTerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[int][2]string{
		50: {"NAME            HOLDER          HELD  TTL  WAITERS", "nightly:a-rat…  285475da-9152…  3s    27s  0"},
		44: {"NAME            HOLDER          TTL  WAITERS", "nightly:a-rat…  285475da-9152…  27s  0"},
		39: {"NAME            HOLDER          WAITERS", "nightly:a-rat…  285475da-9152…  0"},
	} {
		lines := screenOf(width, 24, "nightly:a-rather-long-name")
		assert.Equal(t, want[:], lines[2:4], width)
	}
}

// No line is wider than the screen, and no refresh higher, whatever the names are.
func TestScreenFits(t *testing.T) {
	t.Parallel()
	names := []string{"orders:42", strings.Repeat("n", 512), strings.Repeat("名", 170), "evil\u202e\x1b[2J", "tab\tname"}
	for n := range 40 {
		names = append(names, fmt.Sprintf("lock:%d", n))
	}
	for width := 1; width <= 100; width += 9 {
		for height := 1; height <= 60; height += 3 {
			lines := screenOf(width, height, names...)
			require.LessOrEqual(t, len(lines), height)
			for _, line := range lines {
				require.LessOrEqual(t, columns(line), max(width, 1), "%q", line)
				require.NotContains(t, line, "\x1b")
				require.NotContains(t, line, "\u202e")
			}
		}
	}
	lines := screenOf(80, 10, names...)
	require.Len(t, lines, 10)
	assert.Equal(t, "and 39 more; a PATTERN narrows the list", lines[9])
	assert.Contains(t, lines[3], "lock:39", "the most waiters first")
}

// After a failure the screen has the earlier locks, and says how old they are.
func TestScreenOfAnOutage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	r := &refresh{at: at, views: []viewed{
		{at: at.Add(-12 * time.Second), locks: []lock.Info{{Name: "orders:42", HolderCount: 1, Holders: []lock.Holder{{Owner: "x"}}}}, err: lock.ErrUnavailable},
	}}
	lines := r.lines(80, 24, time.Second)
	assert.Equal(t, "12s old: "+lock.ErrUnavailable.Error(), lines[1])
	assert.Contains(t, lines[4], "orders:42")
}

// A connect.Server that hangs is reported with each refresh, and the age of its locks grows, until
// it answers again.
func TestWatchOfAFrozenServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 2 * time.Second
		frozen := locktest.Start(t)
		store := frozen.Store(t)
		locker, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		defer locker.Close()
		client := frozen.Client(t)
		store, err = redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		defer store.Close()
		watched, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		defer watched.Close()
		lease, err := locker.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		defer lease.Unlock(t.Context()) //nolint:errcheck // the lease may have ended

		w := &watchCommand{interval: duration.Flag(interval), count: 8}
		w.views = []view{{server: &connect.Server{Client: client, Store: store}, locker: watched}}
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		begin, ages := time.Now(), []time.Duration{}
		require.NoError(t, w.refreshEach(t.Context(), cmd, "*", func(r *refresh) error {
			v := r.views[0]
			switch n := len(ages); {
			case n == 0:
				require.NoError(t, v.err)
				frozen.Freeze()
			case n < 6:
				require.Error(t, v.err)
				assert.Contains(t, strings.Join(r.lines(80, 24, interval), "\n"), " old: server ")
			case n == 6:
				frozen.Thaw()
			default:
				require.NoError(t, v.err)
			}
			assert.LessOrEqual(t, time.Since(begin), time.Duration(len(ages))*interval+lock.DefaultRequestTimeout)
			ages = append(ages, r.at.Sub(v.at).Round(time.Second))
			return nil
		}))
		assert.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second, 7 * time.Second, 9 * time.Second, 11 * time.Second, 13 * time.Second, 0}, ages)
	})
}
