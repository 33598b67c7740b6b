//go:build unix

package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A password comes from a file or a command, with and without the end of its line, for the
// default user and for others.
func TestPasswordSources(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{
		TCP: true, Password: commandtest.Secret, Users: []string{"alice on >al!ce ~* &* +@all"},
	})
	_, address := server.Addr()
	lines := commandtest.PrivateFile(t, commandtest.Secret+"\n")
	for name, test := range map[string]struct {
		user  string
		flags []string
		code  int
	}{
		"file":                       {"", []string{"--store-password-file", commandtest.PrivateFile(t, commandtest.Secret)}, 0},
		"file with a newline":        {"", []string{"--store-password-file", lines}, 0},
		"file with CRLF":             {"", []string{"--store-password-file", commandtest.PrivateFile(t, commandtest.Secret+"\r\n")}, 0},
		"spaces are the password's":  {"", []string{"--store-password-file", commandtest.PrivateFile(t, commandtest.Secret+" \n")}, exit.Unavailable},
		"user of the URL":            {"alice@", []string{"--store-password-file", commandtest.PrivateFile(t, "al!ce\n")}, 0},
		"user of a flag":             {"", []string{"--store-user", "alice", "--store-password-file", commandtest.PrivateFile(t, "al!ce\n")}, 0},
		"a flag's user, not the URL": {"bob@", []string{"--store-user", "alice", "--store-password-file", commandtest.PrivateFile(t, "al!ce\n")}, 0},
		"another user's":             {"alice@", []string{"--store-password-file", lines}, exit.Unavailable},
		"command":                    {"", []string{"--store-password-command", "cat " + lines}, 0},
		"command, no newline":        {"alice@", []string{"--store-password-command", "printf %s 'al!ce'"}, 0},
		"command that logs":          {"", []string{"--store-password-command", "echo " + commandtest.Secret + " >&2; cat " + lines}, 0},
		"command that takes a while": {"", []string{"--store-password-command", "sleep 1.5; cat " + lines}, 0},
		"command that is wrong":      {"", []string{"--store-password-command", "echo wrong"}, exit.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := commandtest.Call(t, nil, append([]string{"ls", "--store", "redis://" + test.user + address}, test.flags...)...)
			assert.Equal(t, test.code, p.Wait())
			if test.code == 0 {
				assert.Empty(t, p.Stderr.String())
			} else {
				p.RequireOneLine("check the user and the password: see --store-user and --store-password-file")
			}
		})
	}
}

// A pipe, as of <(…) in a shell, is read once, and serves every connection to each server.
func TestPasswordInAPipe(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		defer read.Close()
		_, err = write.WriteString(commandtest.Secret + "\n")
		require.NoError(t, err)
		require.NoError(t, write.Close())
		args := []string{"ls", "--store-password-file", fmt.Sprintf("/dev/fd/%d", read.Fd())}
		for range servers {
			_, address := redistest.Start(t, redistest.Config{TCP: true, Password: commandtest.Secret}).Addr()
			args = append(args, "--store", "redis://"+address)
		}
		assert.Empty(t, commandtest.Ask(t, nil, exit.OK, args...), servers)
	}
}

// What is wrong with a source of passwords is one line, at once, without the secret.
func TestPasswordSourcesThatFail(t *testing.T) {
	t.Parallel()
	const file, command = "--store-password-file", "--store-password-command"
	good := commandtest.PrivateFile(t, commandtest.Secret)
	server := []string{"--store", "redis://127.0.0.1:1"}
	for name, test := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"no file":             {[]string{file, "/nonexistent/password"}, exit.Usage, "--store-password-file: open /nonexistent/password: no such file"},
		"a directory":         {[]string{file, t.TempDir()}, exit.Usage, "is a directory"},
		"an empty file":       {[]string{file, commandtest.PrivateFile(t, "")}, exit.Usage, "the file has no password"},
		"an empty line":       {[]string{file, commandtest.PrivateFile(t, "\r\n")}, exit.Usage, "the file has no password"},
		"two lines":           {[]string{file, commandtest.PrivateFile(t, commandtest.Secret+"\n"+commandtest.Secret+"\n")}, exit.Usage, "the file has more than one line"},
		"an empty last line":  {[]string{file, commandtest.PrivateFile(t, commandtest.Secret+"\n\n")}, exit.Usage, "the file has more than one line"},
		"a carriage return":   {[]string{file, commandtest.PrivateFile(t, commandtest.Secret+"\r"+commandtest.Secret)}, exit.Usage, "the file has more than one line"},
		"a large file":        {[]string{file, commandtest.PrivateFile(t, strings.Repeat(commandtest.Secret, 64<<10))}, exit.Usage, "more than 65536 bytes"},
		"an endless file":     {[]string{file, "/dev/zero"}, exit.Usage, "more than 65536 bytes"},
		"no text":             {[]string{file, commandtest.PrivateFile(t, commandtest.Secret+"\xff")}, exit.Usage, "is no text"},
		"a command fails":     {[]string{command, "echo " + commandtest.Secret + "; echo " + commandtest.Secret + " >&2; exit 3"}, exit.Unavailable, "--store-password-command: exit status 3"},
		"no command":          {[]string{command, "/nonexistent/command"}, exit.Unavailable, "--store-password-command: exit status 127"},
		"a command is killed": {[]string{command, "kill -9 $$"}, exit.Unavailable, "--store-password-command: exit status 137"},
		"it prints nothing":   {[]string{command, "true"}, exit.Unavailable, "its output has no password"},
		"it prints two lines": {[]string{command, "cat " + good + "; echo; cat " + good}, exit.Unavailable, "its output has more than one line"},
		"it prints for ever":  {[]string{command, "head -c 1000000 /dev/zero"}, exit.Unavailable, "more than 65536 bytes"},

		"both":                 {[]string{file, good, command, "true"}, exit.Usage, "exclude each other"},
		"the URL has one":      {[]string{file, good, "--store", "redis://:" + commandtest.Secret + "@127.0.0.1:1"}, exit.Usage, "password for the server, which is given apart"},
		"a user alone":         {[]string{"--store-user", "alice"}, exit.Usage, "--store-user needs --store-password-file or"},
		"a sentinel's user":    {[]string{"--store-sentinel-user", "alice"}, exit.Usage, "--store-sentinel-user needs"},
		"no sentinel":          {[]string{"--store-sentinel-password-file", good}, exit.Usage, "needs a redis-sentinel:// URL"},
		"no sentinel's file":   {[]string{"--store", "redis-sentinel://127.0.0.1:1?master_name=m", "--store-sentinel-password-file", "/nonexistent"}, exit.Usage, "--store-sentinel-password-file: open /nonexistent"},
		"a sentinel's twice":   {[]string{"--store", "redis-sentinel://127.0.0.1:1?master_name=m&sentinel_password=" + commandtest.Secret, "--store-sentinel-password-file", good}, exit.Usage, "password for the sentinels, which is given apart"},
		"a name without TLS":   {[]string{"--store-server-name", "redis.internal"}, exit.Usage, "need a URL for TLS"},
		"a flag without value": {[]string{file}, exit.Usage, "needs an argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := test.flags
			if !strings.Contains(strings.Join(flags, " "), "--store ") {
				flags = append(server, flags...)
			}
			p := commandtest.Call(t, nil, append([]string{"ls"}, flags...)...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
		})
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
			p := commandtest.Start(t, nil, "ls", "--store", "redis://127.0.0.1:1", "--store-password-command", commandtest.FamilyLine(file, "exec sleep 1000"))
			pids := commandtest.FamilyPIDs(t, file)
			_ = p.Cmd.Process.Signal(sig) // fails if the limit of the command was over
			p.Wait()
			commandtest.RequireAllGone(t, pids)
		})
	}
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"worker on >" + commandtest.Secret + " ~* &* +@all"}})
		_, address := server.Addr()
		file := filepath.Join(t.TempDir(), "pids")
		// The first connection has its password. The command hangs for the next.
		line := "[ -e " + file + ".once ] || { touch " + file + ".once; echo " + commandtest.Secret + "; exit; }; " + commandtest.FamilyLine(file, "exec sleep 1000")
		p := commandtest.Start(t, []string{requestsTake + "=10s"}, "watch", "-i", "100ms", "--store", "redis://worker@"+address, "--store-password-command", line)
		require.Contains(t, p.Line(), "0 locks")
		require.NoError(t, server.Client(t).Do(commandtest.Bounded(t), "client", "kill", "user", "worker").Err())
		pids := commandtest.FamilyPIDs(t, file)
		p.Signal(unix.SIGTERM)
		assert.Equal(t, exit.OK, p.Wait())
		commandtest.RequireAllGone(t, pids)
	})
}

// unhurried are options for sentinels, which only a hang exceeds: go-redis's own limits, of 3 and 5 s, include
// the search for the master. redisstore.New requires more time to dial than to read.
const unhurried = "&dial_timeout=2m&read_timeout=1m"

// A server that hides AUTH repeats its arguments. No line has them.
func TestServerThatHidesAUTH(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true, Directives: []string{`rename-command AUTH ""`, `rename-command HELLO ""`}})
	_, address := server.Addr()
	login := "alice:" + commandtest.Secret + "@" + address
	for _, url := range []string{"redis://" + login, "redis-cluster://" + login, "redis-sentinel://" + login + "?master_name=m" + unhurried} {
		for _, args := range [][]string{
			{"run", "-n", "--store", url, "a", "--", "true"}, {"ls", "--store", url}, {"doctor", "--store", url}, {"queue", "stats", "--store", url, "q"},
			{"bench", "lock", "--store", url},
		} {
			p := commandtest.Call(t, nil, args...)
			assert.Equal(t, exit.Unavailable, p.Wait(), args)
			p.RequireOneLine("the server is too old, or hides a command")
		}
	}
}

// The sentinels' password is apart from the server's. Each is refused by the other.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	const theirs = commandtest.Secret + "-of-sentinels"
	set := redistest.StartSentinels(t, redistest.SentinelConfig{
		Replicas: 1, Sentinels: 1, Server: redistest.Config{Password: commandtest.Secret}, DownAfter: commandtest.Patience,
	})
	_, sentinel := set.Sentinels[0].Addr()
	admin := redis.NewClient(set.Sentinels[0].Options())
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "watcher", "on", ">"+theirs, "+@all", "&*").Err())
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">"+theirs).Err())
	ours, sentinels := commandtest.PrivateFile(t, commandtest.Secret+"\n"), commandtest.PrivateFile(t, theirs+"\n")
	for name, test := range map[string]struct {
		login, options string
		flags          []string
		code           int
	}{
		"both by file":              {"", "", []string{"--store-password-file", ours, "--store-sentinel-password-file", sentinels}, 0},
		"a user at the sentinels":   {"", "", []string{"--store-password-file", ours, "--store-sentinel-user", "watcher", "--store-sentinel-password-file", sentinels}, 0},
		"the server's in the URL":   {":" + commandtest.Secret + "@", "", []string{"--store-sentinel-password-file", sentinels}, 0},
		"the sentinels' in the URL": {"", "&sentinel_password=" + url.QueryEscape(theirs), []string{"--store-password-file", ours}, 0},
		"before the host":           {url.UserPassword("", theirs).String() + "@", "", []string{"--store-password-file", ours}, 0},
		"the server's by a command": {"default@", "", []string{"--store-password-command", "cat " + ours, "--store-sentinel-password-file", sentinels}, 0},
		"the two exchanged":         {"", "", []string{"--store-password-file", sentinels, "--store-sentinel-password-file", ours}, exit.Unavailable},
		"no password for sentinels": {"", "", []string{"--store-password-file", ours}, exit.Unavailable},
		"no password for a server":  {"", "", []string{"--store-sentinel-password-file", sentinels}, exit.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			server := "redis-sentinel://" + test.login + sentinel + "?master_name=" + redistest.MasterName + unhurried + test.options
			p := commandtest.Call(t, nil, append([]string{"ls", "--store", server}, test.flags...)...)
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
	for name, code := range map[string]int{"redis.internal": 0, "redis.example": exit.Unavailable, "": exit.Unavailable} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			leaf := a.leaf("server")
			leaf.IPAddresses, leaf.DNSNames = []net.IP{}, []string{"redis.internal"}
			// A client that has given up may still connect: to a listener that no other name has.
			asked := make(chan string, 1)
			address := a.serveTLSAs(server, false, leaf, func(name string) {
				select {
				case asked <- name:
				default:
				}
			})
			args := []string{"ls", "--store", "rediss://" + address, "--store-ca", a.file}
			if name != "" {
				args = append(args, "--store-server-name", name)
			}
			p := commandtest.Call(t, nil, args...)
			assert.Equal(t, code, p.Wait())
			assert.Equal(t, name, <-asked)
			if code != 0 {
				p.RequireOneLine("certificate")
			}
		})
	}
}

// A URL in a wrong place is an error that quotes it, without its password.
func TestMisplacedURLKeepsItsPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://shop:" + commandtest.Secret + "@cache:6379/1", "rediss://:pa\"ss/@" + commandtest.Secret + "@cache",
		"redis-sentinel://s:1?master_name=m&password=" + commandtest.Secret, "postgresql:///db?host=h&password=" + commandtest.Secret,
	} {
		for _, args := range [][]string{
			{url}, {"doctor", url}, {"version", url}, {"queue", url}, {"help", url}, {"completion", url}, {"ls", "--store-file", url},
			{"ls", "--store-password-file", url, "--store", "redis://127.0.0.1:1"}, {"run", "job", "--", url}, {"run", "job", "--ttl", url},
			{"run", "--ttl", url, "job", "--", "true"}, {"accuracy", url}, {"demo", url}, {"bench", url}, {"inspect", "--kind", url, "a"},
		} {
			p := commandtest.Call(t, commandtest.Nowhere, args...)
			assert.NotEqual(t, exit.OK, p.Wait(), args)
			assert.NotContains(t, p.Stderr.String()+p.Stdout.String(), commandtest.Secret, args)
		}
	}
}
