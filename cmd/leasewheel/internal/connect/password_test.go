//go:build unix

package connect

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A file that this user may not read is named.
func TestPasswordFileThatIsUnreadable(t *testing.T) {
	t.Parallel()
	file := commandtest.PrivateFile(t, commandtest.Secret)
	require.NoError(t, os.Chmod(file, 0))
	_, err := PasswordFromFile("--store-password-file", file)
	if os.Geteuid() == 0 {
		require.NoError(t, err, "root reads every file")
		return
	}
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, file)
}

// Nothing that a command has started outlives it, whether it ends, fails, or hangs beyond
// its limit.
func TestPasswordCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	for then, want := range map[string]string{
		"echo " + commandtest.Secret:            "",
		"exit 3":                                "exit status 3",
		"kill -9 $$":                            "exit status 137",
		"exec sleep 1000":                       "did not end within",
		"echo " + commandtest.Secret + "; wait": "did not end within",
		"trap '' TERM; while :; do :; done":     "did not end within",
	} {
		file := filepath.Join(t.TempDir(), "pids")
		command := &passwordCommand{line: commandtest.FamilyLine(file, then), limit: commandtest.Patience}
		if strings.HasPrefix(want, "did not") {
			command.limit = 500 * time.Millisecond
		}
		password, err := command.password(t.Context())
		if want == "" {
			require.NoError(t, err)
			assert.Equal(t, commandtest.Secret, password)
		} else {
			require.ErrorContains(t, err, want, then)
			assert.NotContains(t, err.Error(), commandtest.Secret)
		}
		if _, err := os.Stat(file); err == nil || command.limit == commandtest.Patience { // else the limit was over before
			commandtest.RequireAllGone(t, commandtest.FamilyPIDs(t, file))
		}
	}
}

// Connections that are made while the command runs share one run. A result without a
// waiter serves the next connection, and no later one.
func TestPasswordCommandRunsAreShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs, gate := filepath.Join(dir, "runs"), filepath.Join(dir, "gate")
	command := &passwordCommand{
		line:  "echo >>" + runs + "; while ! [ -e " + gate + " ]; do sleep 0.01; done; wc -l <" + runs + " | tr -d ' '",
		limit: time.Minute,
	}
	count := func() int {
		text, err := os.ReadFile(runs)
		if err != nil {
			return 0
		}
		return strings.Count(string(text), "\n")
	}

	// Two give up, so the run's result is kept.
	short, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := command.password(short)
			failed <- err
		}()
	}
	require.Eventually(t, func() bool { return count() == 1 }, commandtest.Patience, time.Millisecond)
	cancel()
	for range 2 {
		require.ErrorContains(t, <-failed, "--store-password-command still runs")
	}
	command.mu.Lock()
	run := command.running
	command.mu.Unlock()
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	<-run.done
	assert.Equal(t, 1, count())

	for i, want := range []string{"1", "2", "3"} {
		password, err := command.password(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, password, "call %d", i)
	}
}

// A kept result is used once, and only while it is recent. That of a failed run never is.
func TestPasswordIsNotKeptForLong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age  time.Duration
		err  error
		used bool
	}{
		"recent": {passwordKept / 2, nil, true},
		"old":    {2 * passwordKept, nil, false},
		"failed": {0, errors.New("it failed"), false},
	} {
		command := &passwordCommand{running: &passwordRun{err: test.err, ended: time.Now().Add(-test.age)}}
		assert.Equal(t, test.used, command.takeKept() != nil, name)
		assert.Nil(t, command.takeKept(), name)
	}
}

// A password that changes is read for the next connection, also if the file is behind the
// server for a while.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	const first, second = commandtest.Secret + "-1", commandtest.Secret + "-2"
	server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"worker on >" + first + " ~* &* +@all"}})
	_, address := server.Addr()
	admin, ctx := server.Client(t), commandtest.Bounded(t)
	for name, flags := range map[string]func(file string) ConnectionFlags{
		"file":    func(file string) ConnectionFlags { return ConnectionFlags{PasswordFile: file} },
		"command": func(file string) ConnectionFlags { return ConnectionFlags{PasswordCommand: "cat " + file} },
	} {
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "worker", "resetpass", ">"+first).Err())
		file := commandtest.PrivateFile(t, first+"\n")
		connection := flags(file)
		url := "redis://worker@" + address + "?dial_timeout=1m&read_timeout=1m&write_timeout=1m"
		config, err := connection.clientConfig(url)
		require.NoError(t, err, name)
		client, err := redisstore.Dial(url, config)
		require.NoError(t, err, name)
		require.NoError(t, client.Ping(ctx).Err(), name)

		require.NoError(t, admin.Do(ctx, "acl", "setuser", "worker", "resetpass", ">"+second).Err())
		require.NoError(t, admin.Do(ctx, "client", "kill", "user", "worker").Err())
		require.ErrorContains(t, client.Ping(ctx).Err(), "WRONGPASS", name)
		require.NoError(t, os.WriteFile(file, []byte(second+"\n"), 0o600))
		require.NoError(t, client.Ping(ctx).Err(), name)
		require.NoError(t, client.Close())
	}
}
