//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// actAsCommand, set in the environment, turns the test binary into leasewheel:
// so the processes that the tests start run the code under test, with the race
// detector if the tests have it.
const actAsCommand = "LEASEWHEEL_TEST_ACT_AS_COMMAND"

func TestMain(m *testing.M) {
	// leasewheel starts itself under the name of a hidden command. go test passes flags.
	if os.Getenv(actAsCommand) != "" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
	}
	for _, variable := range []string{redisURLVariable, prefixVariable, pubSubVariable} {
		os.Unsetenv(variable)
	}
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) { // in the background; processes that the tests start must not inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	requestTimeout, probeTimeout, completionTimeout = 5*time.Second, patience, 5*time.Second
	logTo = func(*slog.Logger) {}
	redistest.Parallel(16) // most of them wait
	testmain.Run(m)
}

// process is leasewheel, running.
type process struct {
	t      *testing.T
	args   []string
	cmd    *exec.Cmd // nil after call
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	exited chan struct{} // closed once code is known
	code   int           // as a shell reports it
}

// output is what a process has printed so far.
type output struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan string
}

func (o *output) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		o.mu.Lock()
		o.text.WriteString(lines.Text() + "\n")
		o.mu.Unlock()
		o.lines <- lines.Text()
	}
	close(o.lines)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs leasewheel with args. env comes on top of the test's environment.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startWith(t, env, nil, args...)
}

func startWith(t *testing.T, env []string, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	p := &process{
		t: t, args: args, cmd: exec.Command(program, args...), exited: make(chan struct{}),
		stdout: &output{lines: make(chan string, 1000)}, stderr: &output{lines: make(chan string, 1000)},
	}
	// The race detector would sleep for a second before each exit.
	p.cmd.Env = append(append(os.Environ(), actAsCommand+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	if prepare != nil {
		prepare(p.cmd)
	}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	if p.cmd.Stdin == nil {
		p.stdin, err = p.cmd.StdinPipe()
		require.NoError(t, err)
	}
	require.NoError(t, p.cmd.Start())
	go p.follow(stdout, stderr)
	t.Cleanup(p.end)
	return p
}

// call runs leasewheel with args in this process, to its end. The variables of env that
// name a server or a store become flags: other tests run beside this one.
func call(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return callWith(t, env, "", args...)
}

// callWith is call with a standard input.
func callWith(t *testing.T, env []string, stdin string, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: withFlags(env, args), stdout: &output{}, stderr: &output{}, exited: make(chan struct{})}
	root := newRootCommand()
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&p.stdout.text)
	root.SetErr(&p.stderr.text)
	p.code = execute(root, p.args, &p.stderr.text)
	close(p.exited)
	t.Cleanup(p.end)
	return p
}

// withFlags returns args with the variables of env as flags, if the command has them.
func withFlags(env, args []string) []string {
	command, rest, err := newRootCommand().Find(slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == cobra.ShellCompNoDescRequestCmd
	}))
	if err != nil {
		return args
	}
	named := command.Flags().Lookup("redis") == nil || slices.ContainsFunc(rest, func(arg string) bool { return arg == "--redis" || arg == "--redis-file" })
	var flags []string
	for _, variable := range env {
		switch name, value, _ := strings.Cut(variable, "="); {
		case name == redisURLVariable && !named:
			for url := range strings.FieldsSeq(value) {
				flags = append(flags, "--redis", url)
			}
		case name == prefixVariable:
			flags = append(flags, "--prefix", value)
		}
	}
	return slices.Insert(slices.Clone(args), len(args)-len(rest), flags...)
}

// follow reads the process's output and then its end.
func (p *process) follow(stdout, stderr io.Reader) {
	var readers sync.WaitGroup
	readers.Go(func() { p.stdout.read(stdout) })
	readers.Go(func() { p.stderr.read(stderr) })
	readers.Wait()
	err := p.cmd.Wait()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		p.code = exitCode(unix.WaitStatus(failed.Sys().(syscall.WaitStatus)))
	}
	close(p.exited)
}

// end makes sure that no part of the process outlives its test.
func (p *process) end() {
	select {
	case <-p.exited:
	default:
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended since
		select {
		case <-p.exited:
		case <-time.After(patience):
			p.t.Errorf("%q left something running that holds its output open", p.args)
		}
	}
	if p.t.Failed() {
		p.t.Logf("%q\nstdout:\n%sstderr:\n%s", p.args, p.stdout, p.stderr)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.code
	case <-time.After(patience):
		require.FailNow(p.t, "the process does not end", "%q", p.args)
		return -1
	}
}

// line returns the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	return p.next(p.stdout)
}

func (p *process) next(o *output) string {
	p.t.Helper()
	select {
	case line, open := <-o.lines:
		require.True(p.t, open, "the output ended: %q", p.args)
		return line
	case <-time.After(patience):
		require.FailNow(p.t, "no output", "%q", p.args)
		return ""
	}
}

// awaitError returns the next line on standard error that contains text.
func (p *process) awaitError(text string) string {
	p.t.Helper()
	for {
		if line := p.next(p.stderr); strings.Contains(line, text) {
			return line
		}
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// requireOneLine asserts the form of every failure: one line, without a stack trace and
// without the secret.
func (p *process) requireOneLine(contains string) {
	p.t.Helper()
	text := p.stderr.String()
	assert.Equal(p.t, 1, strings.Count(text, "\n"), "one line on standard error, not %q", text)
	assert.True(p.t, strings.HasPrefix(text, "leasewheel: "), text)
	assert.Contains(p.t, text, contains)
	assert.NotContains(p.t, text, secret)
	assert.NotContains(p.t, text, "goroutine ")
}

// requireReport asserts that leasewheel printed one message on standard error, besides a
// shell's messages about killed processes.
func (p *process) requireReport(contains string) {
	p.t.Helper()
	text := p.stderr.String()
	assert.Equal(p.t, 1, strings.Count(text, "leasewheel: "), text)
	assert.Contains(p.t, text, contains)
	assert.NotContains(p.t, text, "goroutine ")
}

// secret is the password in the tests' URLs. No output may contain it.
const secret = "hunter2"

// onServer starts a redis-server and returns it with the environment that names
// it.
func onServer(t *testing.T, c redistest.Config) (*redistest.Server, []string) {
	t.Helper()
	s := redistest.Start(t, c)
	return s, []string{redisURLVariable + "=" + s.URL()}
}

// gone reports whether no process with this id is left; one that is dead and not
// yet waited for counts as gone.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}
