//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/look"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
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
func document(t *testing.T, line string) (report look.RefreshReport) {
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
	var report look.RefreshReport
	for len(report.Locks) < 5 || report.Locks[2].Holders[0].Client.Host == "" { // records are awaited for a second only
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
	p.Signal(unix.SIGINT)
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
			p.Signal(unix.SIGTERM)
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
		args = append(args, "--store", server.URL())
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
		"--store and --st": {"--store-file", "x"},
	} {
		p := commandtest.Call(t, nil, append([]string{"watch", "--store", server.URL()}, args...)...)
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

// A second signal ends a command that the first one cannot: nothing reads its output.
func TestWatchIntoAFullPipe(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	unread, full, err := os.Pipe()
	require.NoError(t, err)
	defer unread.Close()
	defer full.Close()
	raw, err := full.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Write(func(fd uintptr) bool {
		for err == nil {
			_, err = unix.Write(int(fd), make([]byte, 512))
		}
		return true
	}))
	require.ErrorIs(t, err, unix.EAGAIN)
	p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
		cmd.Args = []string{"/bin/sh", "-c", `exec "$0" watch --json -i 100ms >&3`, cmd.Path}
		cmd.Path = "/bin/sh"
		cmd.ExtraFiles = []*os.File{full}
	})
	commandtest.Eventually(t, "at work", func() bool {
		stats, err := client.InfoMap(commandtest.Bounded(t), "commandstats").Result()
		return err == nil && stats["Commandstats"]["cmdstat_scan"] != ""
	})
	commandtest.Eventually(t, "ended", func() bool { return p.Cmd.Process.Signal(unix.SIGTERM) != nil })
	// It is 0 if the first signal comes before the first write.
	assert.Contains(t, []int{exit.OK, 128 + int(unix.SIGTERM)}, p.Wait())
}
