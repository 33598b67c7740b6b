package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Without a server the locks are in a folder, and run reports that in one line.
func TestRunWithoutAServer(t *testing.T) {
	t.Parallel()
	env := []string{defaultFolder + "=" + t.TempDir() + "/locks"}
	p := commandtest.Start(t, env, runLock("job", sh("echo held; read x"))...)
	p.AwaitError("no server is named")
	require.Equal(t, "held", p.Line())
	p.RequireOneLine("no server is named")

	other := commandtest.Start(t, env, runLock("job", sh("true"), "-n")...)
	assert.Equal(t, exit.NotAcquired, other.Wait())
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"inspect", "job"}} {
		commandtest.Eventually(t, "the name and the label", func() bool { // its record is written in the background
			other := commandtest.Start(t, env, args...)
			require.Equal(t, exit.OK, other.Wait(), args)
			_, after, named := strings.Cut(other.Stdout.String(), "job")
			return named && strings.Contains(after, "sh")
		})
	}
	unlock := commandtest.Start(t, env, "unlock", "--force", "job")
	assert.Equal(t, exit.OK, unlock.Wait())
	next := commandtest.Start(t, env, runLock("job", sh("true"), "-n")...)
	assert.Equal(t, exit.OK, next.Wait())
}

// The number of a semaphore is no holder, as on Redis: it does not go away.
func TestRunFailsOnANumberInAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/locks"
	p := commandtest.Start(t, nil, runLock("gpu", sh("true"), "--permits", "2", "--dir", folder)...)
	require.Equal(t, exit.OK, p.Wait())
	for _, flags := range []string{"-n -E 0", "-w 10ms -E 0", "-n -s", "-n -x", "-n --fair"} {
		p := commandtest.Call(t, nil, runLock("gpu", sh("echo ran"), append(strings.Fields(flags), "--dir", folder)...)...)
		assert.Equal(t, exit.Unavailable, p.Wait(), flags)
		p.RequireOneLine("the key of this name is the number of a semaphore or a latch, not a lock")
		assert.Empty(t, p.Stdout.String(), flags)
	}
}

// A folder that is named is not reported.
func TestRunInAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/locks"
	p := commandtest.Start(t, nil, runLock("job", sh("exit 3"), "--dir", folder)...)
	assert.Equal(t, 3, p.Wait())
	assert.Empty(t, p.Stderr.String())
	for message, flags := range map[string][]string{
		"--dir excludes --store": {"--store", "redis://127.0.0.1:1"},
		"--dir has no server":    {"--prefix", "a:"},
	} {
		p := commandtest.Call(t, nil, runLock("job", sh("true"), append(flags, "--dir", folder)...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine(message)
	}
	// What a script's unset variable leaves of a server is no reason to lock on this machine alone.
	for message, all := range map[string][][]string{
		"no server: name it": {{"--prefix", ""}, {"--store-user", "a"}},
		" is empty": {
			{"--store", ""}, {"--store-file", ""}, {"--store-user", ""}, {"--store-password-file", ""}, {"--store-ca", ""},
			{"--dir", ""}, {"--dir", "", "--store", "redis://127.0.0.1:1"}, {"--dir", folder, "--store-file", ""}, {"--dir", folder, "--store-user", ""},
		},
	} {
		for _, flags := range all {
			p := commandtest.Start(t, []string{defaultFolder + "=" + folder}, runLock("job", sh("echo ran"), flags...)...)
			assert.Equal(t, exit.Usage, p.Wait(), flags)
			p.RequireOneLine(message)
			assert.Empty(t, p.Stdout.String())
		}
	}
	require.NoError(t, os.Chmod(folder, 0o755)) //nolint:gosec // it is refused
	p = commandtest.Call(t, nil, runLock("job", sh("true"), "--dir", folder)...)
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("open to other users (mode 755)")
}

// Only run creates a folder that is named: in an empty one, made by a mistyped name, every lock
// would look free.
func TestLookupsOfAMissingFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/locks"
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"watch", "-n", "1"}, {"inspect", "job"}, {"unlock", "--force", "job"}} {
		p := commandtest.Start(t, nil, append(args, "--dir", folder)...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine(folder + ": no such file or directory")
		assert.NoDirExists(t, folder, args)
	}
	p := commandtest.Start(t, nil, runLock("job", sh("true"), "--dir", folder)...)
	require.Equal(t, exit.OK, p.Wait())
	p = commandtest.Start(t, nil, "ls", "--dir", folder)
	assert.Equal(t, exit.OK, p.Wait())
	// The folder of a command line without names cannot be mistyped: it has no locks yet.
	p = commandtest.Start(t, []string{defaultFolder + "=" + t.TempDir() + "/locks"}, "ls")
	assert.Equal(t, exit.OK, p.Wait())
}

// A completion, for which a key is enough, makes no folder.
func TestCompletionMakesNoFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/locks"
	for _, flags := range [][]string{nil, {"--dir", folder}} {
		p := commandtest.Start(t, []string{defaultFolder + "=" + folder}, append([]string{"__completeNoDesc", "inspect"}, append(flags, "")...)...)
		require.Equal(t, exit.OK, p.Wait())
		assert.Equal(t, noFiles+"\n", p.Stdout.String())
		assert.NoDirExists(t, folder)
	}
}

// The lock of a killed run is free as soon as nothing is left of its command, and no sooner:
// its TTL does not end within the test.
func TestRunKilledInAFolder(t *testing.T) {
	t.Parallel()
	env := []string{defaultFolder + "=" + t.TempDir() + "/locks"}
	p, pids := startFamily(t, env, "--grace", "200ms")
	waiting := commandtest.Start(t, env, runLock("job", sh("echo held; read x"))...)
	waiting.AwaitError("no server is named")
	require.NoError(t, p.Cmd.Process.Kill())
	require.Equal(t, "held", waiting.Line())
	assert.True(t, allGone(pids), "the command of the first holder")
}

// An output that cannot be written is neither the server's fault nor that of the arguments.
func TestOutputOnAFullDisk(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	holder(t, env)
	for _, args := range [][]string{
		{"ls"}, {"watch", "-n", "1"}, {"inspect", "job"}, {"unlock", "--force", "job"}, {"doctor"}, {"acl"}, {"version"}, {"completion", "bash"},
		{"queue", "put", "mails", "hello"}, {"queue", "ls", "mails"}, {"queue", "stats", "mails"},
		{}, {"--help"}, {"run", "--help"}, {"help", "queue", "ls"},
	} {
		p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec "$0" "$@" >/dev/full`}, cmd.Args...)
		}, args...)
		assert.Equal(t, exit.Internal, p.Wait(), args)
		p.RequireOneLine("no space left on device")
	}
}

// A leasewheel within the command does not lock on this machine alone, unnoticed, since its server
// is not named any more.
func TestRunWithinACommandOfRun(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	program, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir() + "/locks"
	inner := []string{"--", program, "run", "-n", "inner", "--", "echo", "ran"}
	for _, c := range []struct {
		flags  []string
		inner  []string
		code   int
		prints string
	}{
		{inner: inner, code: exit.Usage},
		{flags: []string{"--keep-store"}, inner: inner, prints: "ran\n"},
		{inner: slices.Insert(slices.Clone(inner), 3, "--dir", folder), prints: "ran\n"},
	} {
		p := commandtest.Start(t, append(env, defaultFolder+"="+folder), runLock("job", c.inner, c.flags...)...)
		assert.Equal(t, c.code, p.Wait(), c)
		assert.Equal(t, c.prints, p.Stdout.String(), c)
		if c.code != exit.OK {
			p.RequireOneLine("LEASEWHEEL_STORE is empty, as in a command of leasewheel run without --keep-store")
		}
	}
}
