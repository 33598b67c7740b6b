package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// family is a script that starts processes which escape a signal to the command's
// group, or survive SIGTERM, and prints the process ids of all of them.
const family = `
setsid sh -c 'echo $$; exec sleep 300' &
setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' &
sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' &
(setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' &) &
echo $$
exec sleep 300`

// familySize is how many process ids family prints.
const familySize = 5

// startFamily runs a command that consists of a family, and returns it with the ids.
func startFamily(t *testing.T, env []string, flags ...string) (p *commandtest.Process, pids []int) {
	t.Helper()
	p = commandtest.Start(t, env, runLock("job", sh(family), flags...)...)
	for range familySize {
		pids = append(pids, p.PIDLine())
	}
	t.Cleanup(func() {
		for _, pid := range pids {
			if !commandtest.Gone(pid) {
				process, _ := os.FindProcess(pid)
				process.Kill() //nolint:errcheck // it may have ended since
			}
		}
	})
	return p, pids
}

func allGone(pids []int) bool {
	for _, pid := range pids {
		if !commandtest.Gone(pid) {
			return false
		}
	}
	return true
}

// Processes that a shell started before it became leasewheel by exec are not the command's, and go on.
func TestRunLeavesEarlierChildrenAlone(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	script := filepath.Join(t.TempDir(), "script")
	commandtest.WriteExecutable(t, script, "#!/nonexistent\n")
	for name, test := range map[string]struct {
		args []string
		code int
	}{
		"the command is ended":  {runLock("ended", sh("exec sleep 1000"), "--max-hold", "1ms"), exit.Lost},
		"it cannot be executed": {runLock("failed", []string{"--", script}), exit.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
				cmd.Path = "/bin/sh"
				cmd.Args = append([]string{"sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $!; exec "$0" "$@"`}, cmd.Args...)
			}, test.args...)
			earlier := p.PIDLine()
			assert.Equal(t, test.code, p.Wait())
			assert.False(t, commandtest.Gone(earlier))
		})
	}
}

// If leasewheel is killed, no descendant of the command outlives the lock.
func TestRunKilledLeavesNoDescendantBeyondTheLock(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"term", "kill"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			p, pids := startFamily(t, env, "--grace", "200ms", "--on-lost", action)
			require.NoError(t, p.Cmd.Process.Kill())
			commandtest.Eventually(t, "gone", func() bool { return allGone(pids) })
			left, err := server.Client(t).PTTL(commandtest.Bounded(t), "job").Result()
			require.NoError(t, err)
			assert.Positive(t, left, "the lock has run out before")
		})
	}
}

// With --on-lost ignore, the command keeps running when leasewheel is killed.
func TestRunKilledIgnores(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("echo held; echo $$; cat; echo done"), "--on-lost", "ignore")...)
	require.Equal(t, "held", p.Line())
	p.Line()
	guardPID := guardOf(t, p)
	require.NoError(t, p.Cmd.Process.Kill())
	commandtest.Eventually(t, "gone", func() bool { return commandtest.Gone(guardPID) })
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, "done", p.Line())
}

// If the guard is killed, leasewheel adopts the command: the lock is held until the
// command has ended, and the exit code is the command's.
func TestRunOutlivesItsGuard(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		action string
		code   int
	}{
		"command goes on":                     {"echo held; cat; exit 7", "ignore", 7},
		"command gets the kernel's signal":    {"trap 'echo terminated; exit 8' TERM; echo held; while :; do sleep 0.02; done", "term", 8},
		"command ignores the kernel's signal": {"trap '' TERM; echo held; cat; exit 9", "term", 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			p := commandtest.Start(t, env, runLock("job", sh(test.script), "-v", "--on-lost", test.action)...)
			p.AwaitError("started")
			require.Equal(t, "held", p.Line())
			process, err := os.FindProcess(guardOf(t, p))
			require.NoError(t, err)
			require.NoError(t, process.Kill())
			commandtest.Eventually(t, "gone", func() bool { return commandtest.Gone(process.Pid) })
			if test.code != 8 {
				held, err := server.Client(t).Exists(commandtest.Bounded(t), "job").Result()
				require.NoError(t, err)
				assert.EqualValues(t, 1, held)
				require.NoError(t, p.Stdin.Close())
			}
			assert.Equal(t, test.code, p.Wait())
			held, err := server.Client(t).Exists(commandtest.Bounded(t), "job").Result()
			require.NoError(t, err)
			assert.Zero(t, held, "the lock was given back")
		})
	}
}

// guardOf returns the process id of the guard of leasewheel run.
func guardOf(t *testing.T, p *commandtest.Process) int {
	t.Helper()
	parent := strconv.Itoa(p.Cmd.Process.Pid)
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, folder := range folders {
		line, _ := os.ReadFile(folder + "/cmdline")
		stat, _ := os.ReadFile(folder + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == parent && strings.Contains(string(line), "run-guard") {
			pid, err := strconv.Atoi(filepath.Base(folder))
			require.NoError(t, err)
			return pid
		}
	}
	require.FailNow(t, "no guard")
	return 0
}

// The guard gets the command's environment and arguments without a change, and the
// command gets none of the guard's files.
func TestRunThroughTheGuardChangesNothing(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	env = append(env, "ODD=\xff\xfe\n\x01")
	p := commandtest.Start(t, env, runLock("job", []string{"--", "sh", "-c", `printf '%s|%s|\n' "$1" "$ODD"; ls -l /proc/self/fd`, "sh", "a\xffb"})...)
	assert.Equal(t, 0, p.Wait())
	output := p.Stdout.String()
	assert.True(t, strings.HasPrefix(output, "a\xffb|\xff\xfe\n\x01|\n"), "%q", output)
	assert.Contains(t, output, "pipe:")
	for _, socket := range regexp.MustCompile(`socket:\S+`).FindAllString(output, -1) {
		assert.Contains(t, openFiles(t), socket, "the guard's, or a connection's, and not one that the tests were started with")
	}
}

// The command gets the files that the caller has open, at their numbers: redirections of a shell, as
// 3>&1, and make's jobserver.
func TestRunPassesOpenFilesOn(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	for name, test := range map[string]struct {
		numbers, flags []string
		env            []string
	}{
		"none":          {nil, nil, env},
		"two":           {[]string{"3", "4"}, nil, env},
		"with gaps":     {[]string{"4", "6", "9"}, nil, env},
		"without a gap": {[]string{"3", "4", "5", "6", "7", "8"}, nil, env},
		"of a folder":   {[]string{"3", "5"}, []string{"--dir", filepath.Join(t.TempDir(), "locks")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var script strings.Builder
			script.WriteString("true")
			files := make([]*os.File, 7) // 3 to 9
			for _, number := range test.numbers {
				file, err := os.Create(filepath.Join(t.TempDir(), number))
				require.NoError(t, err)
				defer file.Close()
				files[number[0]-'3'] = file
				script.WriteString(" && echo " + number + " >&" + number)
			}
			for number := range 7 {
				if files[number] == nil {
					script.WriteString(fmt.Sprintf(" && [ ! -e /proc/$$/fd/%d ]", 3+number))
				}
			}
			p := commandtest.StartWith(t, test.env, func(cmd *exec.Cmd) { cmd.ExtraFiles = files }, runLock("job", sh(script.String()), test.flags...)...)
			assert.Equal(t, 0, p.Wait(), p.Stderr)
			for _, number := range test.numbers {
				text, err := os.ReadFile(files[number[0]-'3'].Name())
				require.NoError(t, err)
				assert.Equal(t, number+"\n", string(text))
			}
		})
	}
}

// openFiles returns what the files are that this process has open.
func openFiles(t *testing.T) (all []string) {
	t.Helper()
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, descriptor := range descriptors {
		if file, err := os.Readlink(descriptor); err == nil { // it may have been closed since
			all = append(all, file)
		}
	}
	return all
}

// A guard that leasewheel run did not start returns an error.
func TestGuardAlone(t *testing.T) {
	t.Parallel()
	p := commandtest.Start(t, nil, "run-guard")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("only leasewheel run starts this command")
}

// Processes that a command leaves behind when it ends by itself keep running, and run
// does not wait for them.
func TestRunLeavesAlone(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("setsid sleep 1000 >/dev/null 2>&1 & echo $!; sleep 1000 >/dev/null 2>&1 & echo $!"))...)
	pids := []int{p.PIDLine(), p.PIDLine()}
	assert.Equal(t, 0, p.Wait())
	for _, pid := range pids {
		assert.False(t, commandtest.Gone(pid))
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, process.Kill())
	}
}
