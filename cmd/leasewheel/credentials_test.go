//go:build unix

package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// passwordFile returns a private file with the text.
func passwordFile(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A password comes from a file or a command, with and without the end of its line, for the
// default user and for others.
func TestPasswordSources(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{
		TCP: true, Password: commandtest.Secret, Users: []string{"alice on >al!ce ~* &* +@all"},
	})
	_, address := server.Addr()
	lines := passwordFile(t, commandtest.Secret+"\n")
	for name, test := range map[string]struct {
		user  string
		flags []string
		code  int
	}{
		"file":                       {"", []string{"--redis-password-file", passwordFile(t, commandtest.Secret)}, 0},
		"file with a newline":        {"", []string{"--redis-password-file", lines}, 0},
		"file with CRLF":             {"", []string{"--redis-password-file", passwordFile(t, commandtest.Secret+"\r\n")}, 0},
		"spaces are the password's":  {"", []string{"--redis-password-file", passwordFile(t, commandtest.Secret+" \n")}, exit.Unavailable},
		"user of the URL":            {"alice@", []string{"--redis-password-file", passwordFile(t, "al!ce\n")}, 0},
		"user of a flag":             {"", []string{"--redis-user", "alice", "--redis-password-file", passwordFile(t, "al!ce\n")}, 0},
		"a flag's user, not the URL": {"bob@", []string{"--redis-user", "alice", "--redis-password-file", passwordFile(t, "al!ce\n")}, 0},
		"another user's":             {"alice@", []string{"--redis-password-file", lines}, exit.Unavailable},
		"command":                    {"", []string{"--redis-password-command", "cat " + lines}, 0},
		"command, no newline":        {"alice@", []string{"--redis-password-command", "printf %s 'al!ce'"}, 0},
		"command that logs":          {"", []string{"--redis-password-command", "echo " + commandtest.Secret + " >&2; cat " + lines}, 0},
		"command that takes a while": {"", []string{"--redis-password-command", "sleep 1.5; cat " + lines}, 0},
		"command that is wrong":      {"", []string{"--redis-password-command", "echo wrong"}, exit.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := commandtest.Call(t, nil, append([]string{"ls", "--redis", "redis://" + test.user + address}, test.flags...)...)
			assert.Equal(t, test.code, p.Wait())
			if test.code == 0 {
				assert.Empty(t, p.Stderr.String())
			} else {
				p.RequireOneLine("check the user and the password")
			}
		})
	}
}

// What is wrong with a source of passwords is one line, at once, without the secret.
func TestPasswordSourcesThatFail(t *testing.T) {
	t.Parallel()
	const file, command = "--redis-password-file", "--redis-password-command"
	good := passwordFile(t, commandtest.Secret)
	server := []string{"--redis", "redis://127.0.0.1:1"}
	for name, test := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"no file":             {[]string{file, "/nonexistent/password"}, exit.Usage, "--redis-password-file: open /nonexistent/password: no such file"},
		"a directory":         {[]string{file, t.TempDir()}, exit.Usage, "is a directory"},
		"an empty file":       {[]string{file, passwordFile(t, "")}, exit.Usage, "the file has no password"},
		"an empty line":       {[]string{file, passwordFile(t, "\r\n")}, exit.Usage, "the file has no password"},
		"two lines":           {[]string{file, passwordFile(t, commandtest.Secret+"\n"+commandtest.Secret+"\n")}, exit.Usage, "the file has more than one line"},
		"an empty last line":  {[]string{file, passwordFile(t, commandtest.Secret+"\n\n")}, exit.Usage, "the file has more than one line"},
		"a carriage return":   {[]string{file, passwordFile(t, commandtest.Secret+"\r"+commandtest.Secret)}, exit.Usage, "the file has more than one line"},
		"a large file":        {[]string{file, passwordFile(t, strings.Repeat(commandtest.Secret, maxPassword))}, exit.Usage, "more than 65536 bytes"},
		"an endless file":     {[]string{file, "/dev/zero"}, exit.Usage, "more than 65536 bytes"},
		"no text":             {[]string{file, passwordFile(t, commandtest.Secret+"\xff")}, exit.Usage, "is no text"},
		"a command fails":     {[]string{command, "echo " + commandtest.Secret + "; echo " + commandtest.Secret + " >&2; exit 3"}, exit.Unavailable, "--redis-password-command: exit status 3"},
		"no command":          {[]string{command, "/nonexistent/command"}, exit.Unavailable, "--redis-password-command: exit status 127"},
		"a command is killed": {[]string{command, "kill -9 $$"}, exit.Unavailable, "--redis-password-command: exit status 137"},
		"it prints nothing":   {[]string{command, "true"}, exit.Unavailable, "its output has no password"},
		"it prints two lines": {[]string{command, "cat " + good + "; echo; cat " + good}, exit.Unavailable, "its output has more than one line"},
		"it prints for ever":  {[]string{command, "head -c 1000000 /dev/zero"}, exit.Unavailable, "more than 65536 bytes"},

		"both":                 {[]string{file, good, command, "true"}, exit.Usage, "exclude each other"},
		"the URL has one":      {[]string{file, good, "--redis", "redis://:" + commandtest.Secret + "@127.0.0.1:1"}, exit.Usage, "password for the server, which is given apart"},
		"a user alone":         {[]string{"--redis-user", "alice"}, exit.Usage, "--redis-user needs --redis-password-file or"},
		"a sentinel's user":    {[]string{"--redis-sentinel-user", "alice"}, exit.Usage, "--redis-sentinel-user needs"},
		"no sentinel":          {[]string{"--redis-sentinel-password-file", good}, exit.Usage, "needs a redis-sentinel:// URL"},
		"no sentinel's file":   {[]string{"--redis", "redis-sentinel://127.0.0.1:1?master_name=m", "--redis-sentinel-password-file", "/nonexistent"}, exit.Usage, "--redis-sentinel-password-file: open /nonexistent"},
		"a sentinel's twice":   {[]string{"--redis", "redis-sentinel://127.0.0.1:1?master_name=m&sentinel_password=" + commandtest.Secret, "--redis-sentinel-password-file", good}, exit.Usage, "password for the sentinels, which is given apart"},
		"a name without TLS":   {[]string{"--redis-server-name", "redis.internal"}, exit.Usage, "need a rediss:// URL"},
		"a flag without value": {[]string{file}, exit.Usage, "needs an argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := test.flags
			if !strings.Contains(strings.Join(flags, " "), "--redis ") {
				flags = append(server, flags...)
			}
			p := commandtest.Call(t, nil, append([]string{"ls"}, flags...)...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
		})
	}
}

// A file that this user may not read is named.
func TestPasswordFileThatIsUnreadable(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, commandtest.Secret)
	require.NoError(t, os.Chmod(file, 0))
	_, err := passwordFromFile("--redis-password-file", file)
	if os.Geteuid() == 0 {
		require.NoError(t, err, "root reads every file")
		return
	}
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, file)
}

// credentialLine is a line of shell that writes the process ids of its shell and of two
// processes that it starts to the file, and then does something.
func credentialLine(file, then string) string {
	return "{ echo $$; sleep 1000 >/dev/null 2>&1 & echo $!; (trap '' TERM HUP INT; sleep 1000) >/dev/null 2>&1 & echo $!; } >" +
		file + ".new; mv " + file + ".new " + file + "; " + then
}

// credentialPIDs waits for the file of a credentialLine.
func credentialPIDs(t *testing.T, file string) (pids []int) {
	t.Helper()
	commandtest.Eventually(t, "written", func() bool { _, err := os.Stat(file); return err == nil })
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 3)
	return pids
}

// requireAllGone waits until none of the processes is left, and kills them if that fails.
func requireAllGone(t *testing.T, pids []int) {
	t.Helper()
	t.Cleanup(func() {
		for _, pid := range pids {
			if !commandtest.Gone(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	})
	commandtest.Eventually(t, "gone", func() bool { return !slices.ContainsFunc(pids, func(pid int) bool { return !commandtest.Gone(pid) }) })
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
		command := &passwordCommand{line: credentialLine(file, then), limit: commandtest.Patience}
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
			requireAllGone(t, credentialPIDs(t, file))
		}
	}
}

// A command that hangs is not left behind when leasewheel ends: by a signal, by being
// killed, or by itself.
func TestPasswordCommandEndsWithLeasewheel(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			p := commandtest.Start(t, nil, "ls", "--redis", "redis://127.0.0.1:1", "--redis-password-command", credentialLine(file, "exec sleep 1000"))
			pids := credentialPIDs(t, file)
			_ = p.Cmd.Process.Signal(sig) // fails if the limit of the command was over
			p.Wait()
			requireAllGone(t, pids)
		})
	}
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"worker on >" + commandtest.Secret + " ~* &* +@all"}})
		_, address := server.Addr()
		file := filepath.Join(t.TempDir(), "pids")
		// The first connection has its password. The command hangs for the next.
		line := "[ -e " + file + ".once ] || { touch " + file + ".once; echo " + commandtest.Secret + "; exit; }; " + credentialLine(file, "exec sleep 1000")
		p := commandtest.Start(t, nil, "watch", "-i", "100ms", "--redis", "redis://worker@"+address, "--redis-password-command", line)
		require.Contains(t, p.Line(), "0 locks")
		require.NoError(t, server.Client(t).Do(commandtest.Bounded(t), "client", "kill", "user", "worker").Err())
		pids := credentialPIDs(t, file)
		p.Signal(unix.SIGTERM)
		assert.Equal(t, exit.OK, p.Wait())
		requireAllGone(t, pids)
	})
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
		require.ErrorContains(t, <-failed, "--redis-password-command still runs")
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
	for name, flags := range map[string]func(file string) connectionFlags{
		"file":    func(file string) connectionFlags { return connectionFlags{PasswordFile: file} },
		"command": func(file string) connectionFlags { return connectionFlags{PasswordCommand: "cat " + file} },
	} {
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "worker", "resetpass", ">"+first).Err())
		file := passwordFile(t, first+"\n")
		connection := flags(file)
		url := "redis://worker@" + address
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

// The sentinels' password is apart from the server's. Each is refused by the other.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	const theirs = commandtest.Secret + "-of-sentinels"
	set := redistest.StartSentinels(t, redistest.SentinelConfig{
		Replicas: 1, Sentinels: 1, Server: redistest.Config{Password: commandtest.Secret},
	})
	_, sentinel := set.Sentinels[0].Addr()
	admin := redis.NewClient(set.Sentinels[0].Options())
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "watcher", "on", ">"+theirs, "+@all", "&*").Err())
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">"+theirs).Err())
	ours, sentinels := passwordFile(t, commandtest.Secret+"\n"), passwordFile(t, theirs+"\n")
	for name, test := range map[string]struct {
		login, options string
		flags          []string
		code           int
	}{
		"both by file":              {"", "", []string{"--redis-password-file", ours, "--redis-sentinel-password-file", sentinels}, 0},
		"a user at the sentinels":   {"", "", []string{"--redis-password-file", ours, "--redis-sentinel-user", "watcher", "--redis-sentinel-password-file", sentinels}, 0},
		"the server's in the URL":   {":" + commandtest.Secret + "@", "", []string{"--redis-sentinel-password-file", sentinels}, 0},
		"the sentinels' in the URL": {"", "&sentinel_password=" + url.QueryEscape(theirs), []string{"--redis-password-file", ours}, 0},
		"before the host":           {url.UserPassword("", theirs).String() + "@", "", []string{"--redis-password-file", ours}, 0},
		"the server's by a command": {"default@", "", []string{"--redis-password-command", "cat " + ours, "--redis-sentinel-password-file", sentinels}, 0},
		"the two exchanged":         {"", "", []string{"--redis-password-file", sentinels, "--redis-sentinel-password-file", ours}, exit.Unavailable},
		"no password for sentinels": {"", "", []string{"--redis-password-file", ours}, exit.Unavailable},
		"no password for a server":  {"", "", []string{"--redis-sentinel-password-file", sentinels}, exit.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			server := "redis-sentinel://" + test.login + sentinel + "?master_name=" + redistest.MasterName + test.options
			p := commandtest.Call(t, nil, append([]string{"ls", "--redis", server}, test.flags...)...)
			assert.Equal(t, test.code, p.Wait())
			if test.code == 0 {
				assert.Empty(t, p.Stderr.String())
			} else {
				p.RequireOneLine("")
			}
		})
	}
}

// The name that the certificate must have is the flag's, if the URL has an address only. It
// is sent to the server as well.
func TestServerName(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	a := newAuthority(t)
	leaf := a.leaf("server")
	leaf.IPAddresses, leaf.DNSNames = []net.IP{}, []string{"redis.internal"}
	asked := make(chan string, 100)
	address := a.serveTLSAs(server, false, leaf, func(name string) { asked <- name })
	for name, code := range map[string]int{"redis.internal": 0, "redis.example": exit.Unavailable, "": exit.Unavailable} {
		t.Run(name, func(t *testing.T) {
			p := commandtest.Call(t, nil, "ls", "--redis", "rediss://"+address, "--redis-ca", a.file, "--redis-server-name", name)
			assert.Equal(t, code, p.Wait())
			assert.Equal(t, name, <-asked)
			for len(asked) > 0 {
				<-asked
			}
			if code != 0 {
				p.RequireOneLine("certificate")
			}
		})
	}
}
