//go:build real && unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// lockTool is flock or leasewheel, with one lock.
type lockTool struct {
	t      *testing.T
	cell   string            // what the table says of it
	file   string            // flock's
	server *redistest.Server // leasewheel's
	env    []string
}

// invocation matches the command line in a cell of the table.
var invocation = regexp.MustCompile("^`((?:flock|leasewheel run) [^`]*)`")

// isFlock reports whether this is flock rather than leasewheel.
func (l *lockTool) isFlock() bool { return l.server == nil }

// start runs the cell's line with a script as its COMMAND or LINE.
func (l *lockTool) start(script string) *commandtest.Process {
	l.t.Helper()
	line := invocation.FindStringSubmatch(l.cell)
	require.NotNil(l.t, line, l.cell)
	return l.startLine(line[1], script)
}

// startLine runs a line of the table, whose words FILE, NAME, COMMAND and LINE it replaces.
func (l *lockTool) startLine(line, script string) *commandtest.Process {
	l.t.Helper()
	var words []string
	for word := range strings.FieldsSeq(line) {
		switch word {
		case "FILE":
			words = append(words, l.file)
		case "NAME":
			words = append(words, "job")
		case "COMMAND":
			words = append(words, "sh", "-c", script)
		case "LINE":
			words = append(words, script)
		default:
			words = append(words, word)
		}
	}
	if !l.isFlock() {
		return commandtest.Start(l.t, l.env, words[1:]...)
	}
	return commandtest.StartWith(l.t, nil, func(cmd *exec.Cmd) {
		path, err := exec.LookPath("flock")
		require.NoError(l.t, err)
		cmd.Path, cmd.Args = path, words
	})
}

// startPlain runs the line of the table's first row.
func (l *lockTool) startPlain(script string) *commandtest.Process {
	l.t.Helper()
	if l.isFlock() {
		return l.startLine("flock FILE COMMAND", script)
	}
	return l.startLine("leasewheel run NAME -- COMMAND", script)
}

// hold has a process hold the lock until its standard input is closed.
func (l *lockTool) hold(begin func(script string) *commandtest.Process) (release func()) {
	l.t.Helper()
	p := begin("echo held; cat")
	require.Equal(l.t, "held", p.Line())
	return func() {
		l.t.Helper()
		require.NoError(l.t, p.Stdin.Close())
		require.Equal(l.t, 0, p.Wait())
	}
}

// refused runs the cell's line while the lock is held, and expects the exit code.
func (l *lockTool) refused(code int) {
	l.t.Helper()
	p := l.start("echo ran")
	assert.Equal(l.t, code, p.Wait(), l.cell)
	assert.Empty(l.t, p.Stdout.String())
	assert.Contains(l.t, l.cell, itoa(code))
}

// tryPlain reports whether the lock is free.
func (l *lockTool) tryPlain() bool {
	l.t.Helper()
	line := "leasewheel run -n NAME -- COMMAND"
	if l.isFlock() {
		line = "flock -n FILE COMMAND"
	}
	return l.startLine(line, "true").Wait() == 0
}

// codeOf returns flock's exit code, or leasewheel's.
func (l *lockTool) codeOf(flock, leasewheel int) int {
	if l.isFlock() {
		return flock
	}
	return leasewheel
}

// flockRows are the tests of the table in docs/migrating.md, by the first cell of each row.
// Each runs for leasewheel, and for flock if its cell has a command line.
var flockRows = map[string]func(l *lockTool){
	"wait, and run a command": func(l *lockTool) {
		release := l.hold(l.start)
		waiting := l.start("echo ran")
		assert.False(l.t, l.tryPlain())
		release()
		assert.Equal(l.t, 0, waiting.Wait())
		assert.Equal(l.t, "ran\n", waiting.Stdout.String())
	},
	"run a line of shell": func(l *lockTool) {
		p := l.start("echo one | cat; echo two")
		assert.Equal(l.t, 0, p.Wait())
		assert.Equal(l.t, "one\ntwo\n", p.Stdout.String())
	},
	"not wait": func(l *lockTool) {
		defer l.hold(l.startPlain)()
		l.refused(l.codeOf(1, exit.NotAcquired))
	},
	"wait for a time": func(l *lockTool) {
		release := l.hold(l.startPlain)
		begun := time.Now()
		l.refused(l.codeOf(1, exit.NotAcquired))
		assert.GreaterOrEqual(l.t, time.Since(begun), 200*time.Millisecond)
		release()
		assert.Equal(l.t, 0, l.start("true").Wait())
	},
	"choose that exit code": func(l *lockTool) {
		defer l.hold(l.startPlain)()
		l.refused(9)
	},
	"share it with readers": func(l *lockTool) {
		release := l.hold(l.start)
		beside := l.start("echo beside")
		assert.Equal(l.t, 0, beside.Wait())
		assert.Equal(l.t, "beside\n", beside.Stdout.String())
		assert.False(l.t, l.tryPlain(), "broken promise: no writer is beside a reader")
		release()
	},
	"exclude readers": func(l *lockTool) {
		defer l.hold(l.start)()
		reader := "leasewheel run -n -s NAME -- COMMAND"
		if l.isFlock() {
			reader = "flock -n -s FILE COMMAND"
		}
		p := l.startLine(reader, "echo ran")
		assert.Equal(l.t, l.codeOf(1, exit.NotAcquired), p.Wait())
		assert.Empty(l.t, p.Stdout.String())
	},
	"let two hold it": func(l *lockTool) {
		release, releaseSecond := l.hold(l.start), l.hold(l.start)
		third := l.start("echo ran")
		release()
		assert.Equal(l.t, 0, third.Wait())
		releaseSecond()
	},
	"keep the order of arrival": func(l *lockTool) {
		client := l.server.Client(l.t)
		release := l.hold(l.start)
		order := filepath.Join(l.t.TempDir(), "order")
		var waiting []*commandtest.Process
		for i := range 3 {
			waiting = append(waiting, l.start("echo "+itoa(i)+" >> "+order))
			commandtest.Eventually(l.t, "in the queue", func() bool {
				return client.LLen(l.t.Context(), "redisson_lock_queue:{job}").Val() == int64(i+1)
			})
		}
		release()
		for _, p := range waiting {
			assert.Equal(l.t, 0, p.Wait())
		}
		text, err := os.ReadFile(order)
		require.NoError(l.t, err)
		assert.Equal(l.t, "0\n1\n2\n", string(text))
	},
	"get the command's exit code": func(l *lockTool) {
		assert.Equal(l.t, 7, l.start("exit 7").Wait())
		assert.Equal(l.t, 143, l.start("kill -TERM $$").Wait())
	},
	"give it standard input": func(l *lockTool) {
		p := l.start("cat")
		_, err := p.Stdin.Write([]byte("through\n"))
		require.NoError(l.t, err)
		assert.Equal(l.t, "through", p.Line())
		require.NoError(l.t, p.Stdin.Close())
		assert.Equal(l.t, 0, p.Wait())
	},
	"stop the command with SIGTERM": func(l *lockTool) {
		p := l.startPlain(`trap "echo stopped; exit 3" TERM; echo held; while :; do sleep 0.01; done`)

		require.Equal(l.t, "held", p.Line())
		p.Signal(syscall.SIGTERM)
		assert.Equal(l.t, "stopped", p.Line())
		assert.Equal(l.t, 3, p.Wait())
		assert.True(l.t, l.tryPlain())
	},
	"end the lock with the command": func(l *lockTool) {
		p := l.start("sleep 60 >/dev/null 2>&1 & echo $!")
		pid := p.Line()
		assert.Equal(l.t, 0, p.Wait())
		assert.True(l.t, l.tryPlain(), "a process that the command has left behind does not hold the lock")
		require.NoError(l.t, exec.CommandContext(l.t.Context(), "kill", pid).Run())
	},
	"end the command with the lock": func(l *lockTool) {
		p := l.start(`trap "echo stopped; exit 0" TERM; echo held; while :; do sleep 0.01; done`)
		require.Equal(l.t, "held", p.Line())
		assert.Equal(l.t, 0, commandtest.Start(l.t, l.env, "unlock", "--force", "job").Wait())
		assert.Equal(l.t, "stopped", p.Line())
		assert.Equal(l.t, exit.Lost, p.Wait())
		assert.Contains(l.t, l.cell, itoa(exit.Lost))
	},
	"free the lock of a dead holder": func(l *lockTool) {
		p := l.start("echo $$; while :; do sleep 0.01; done")
		pid := p.Line()
		p.Signal(syscall.SIGKILL)
		assert.Equal(l.t, 137, p.Wait())
		if runtime.GOOS == "linux" { // the guard has ended the command, or p would not be at its end
			assert.Error(l.t, exec.CommandContext(l.t.Context(), "kill", "-0", pid).Run())
		} else {
			_ = exec.CommandContext(l.t.Context(), "kill", pid).Run()
		}
		assert.Equal(l.t, 0, l.start("true").Wait(), "waited for the TTL")
	},
	"name it in the environment": func(l *lockTool) {
		p := l.start(`echo "$LEASEWHEEL_LOCK_NAME"; test "$LEASEWHEEL_LOCK_FENCE" -gt 0`)
		assert.Equal(l.t, "job", p.Line())
		assert.Equal(l.t, 0, p.Wait())
	},
	"see what it does": func(l *lockTool) {
		p := l.start("true")
		assert.Equal(l.t, 0, p.Wait())
		if l.isFlock() {
			assert.Contains(l.t, p.Stdout.String(), "flock: ")
			return
		}
		assert.Contains(l.t, p.Stderr.String(), "leasewheel: ")
	},
	"lock without a command": func(l *lockTool) {
		if !l.isFlock() {
			p := commandtest.Start(l.t, l.env, "run", "job")
			assert.Equal(l.t, exit.Usage, p.Wait())
			p.RequireOneLine("COMMAND is missing")
			return
		}
		script := exec.CommandContext(l.t.Context(), "sh", "-c", `exec 9>"$0"; flock 9; ! flock -n "$0" true`, l.file)
		assert.NoError(l.t, script.Run())
	},
}

// Each row of the table that compares run with flock, consul lock and etcdctl lock does what
// it says, and each has a test.
func TestFlockTable(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "docs", "migrating.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## From flock")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := make(map[string]bool)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "| to") || strings.HasPrefix(cells[0], "| ---") {
			assert.False(t, strings.HasPrefix(line, "| ") && len(cells) != 5, "%d cells: %s", len(cells), line)
			continue
		}
		name := strings.TrimPrefix(cells[0], "| ")
		rows[name] = true
		test := flockRows[name]
		if !assert.NotNil(t, test, "%s: a row without a test", name) {
			continue
		}
		t.Run(name+" with leasewheel", func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			test(&lockTool{t: t, cell: strings.TrimSuffix(cells[4], " |"), server: server, env: env})
		})
		t.Run(name+" with flock", func(t *testing.T) {
			t.Parallel()
			if !invocation.MatchString(cells[1]) {
				assert.Contains(t, notWithFlock, name, "the cell has no command line: %s", cells[1])
				return
			}
			needFlock(t)
			test(&lockTool{t: t, cell: cells[1], file: filepath.Join(t.TempDir(), "lock")})
		})
	}
	for name := range flockRows {
		assert.True(t, rows[name], "no row: %s", name)
	}
}

// needFlock skips t where there is no flock(1). Under CI it fails t on Linux, which has one.
func needFlock(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("flock")
	switch {
	case err == nil:
	case runtime.GOOS == "linux" && os.Getenv("CI") == "true":
		t.Fatal("there is no flock")
	default:
		t.Skip("there is no flock")
	}
}

// notWithFlock are the rows of which flock is not capable.
var notWithFlock = []string{
	"let two hold it", "keep the order of arrival", "stop the command with SIGTERM", "end the command with the lock",
	"free the lock of a dead holder", "name it in the environment",
}

// What the table says flock cannot do, it does not.
func TestFlockWithoutTheCommand(t *testing.T) {
	t.Parallel()
	needFlock(t)
	for name, end := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "a dead holder": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			l := &lockTool{t: t, file: filepath.Join(t.TempDir(), "lock")}
			p := l.startPlain("echo held; cat")
			require.Equal(t, "held", p.Line())
			p.Signal(end)
			assert.False(t, l.tryPlain(), "the command goes on, and the lock with it")
			require.NoError(t, p.Stdin.Close())
			assert.Equal(t, 128+int(end), p.Wait())
			assert.True(t, l.tryPlain())
		})
	}
}
