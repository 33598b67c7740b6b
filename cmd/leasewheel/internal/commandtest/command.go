//go:build unix

package commandtest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// ActAsCommand is a variable that, set in the environment, turns the test binary into leasewheel:
// so the processes that the tests start run the code under test, with the race
// detector if the tests have it.
const ActAsCommand = "LEASEWHEEL_TEST_ACT_AS_COMMAND"

// newRoot makes the command under test.
var newRoot func() *cobra.Command

// Main runs the tests of a package, of the command that root makes. inTests prepares a
// process that runs tests, and inProcesses one that a test has started.
func Main(m *testing.M, root func() *cobra.Command, inTests, inProcesses func()) {
	newRoot = root
	// leasewheel starts itself under the name of a hidden command. go test passes flags.
	if os.Getenv(ActAsCommand) != "" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		inProcesses()
		exit.Process(root())
	}
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) { // in the background; processes that the tests start must not inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	for _, variable := range []string{"LEASEWHEEL_STORE", "LEASEWHEEL_PREFIX", "LEASEWHEEL_PUBSUB", "TERM"} {
		os.Unsetenv(variable)
	}
	inTests()
	redistest.Parallel(16) // most of them wait
	testmain.Run(m)
}

// Process is leasewheel, running.
type Process struct {
	t      *testing.T
	args   []string
	Cmd    *exec.Cmd // nil after call
	Stdin  io.WriteCloser
	Stdout *output
	Stderr *output
	exited chan struct{} // closed once code is known
	code   int           // as a shell reports it

	// HeldUp is set if the machine held up a command that was called: some limit may have been reached.
	HeldUp bool
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

// Start runs leasewheel with args. env comes on top of the test's environment.
func Start(t *testing.T, env []string, args ...string) *Process {
	t.Helper()
	return StartWith(t, env, nil, args...)
}

// StartWith is Start with a process that prepare has changed, if it is not nil.
func StartWith(t *testing.T, env []string, prepare func(*exec.Cmd), args ...string) *Process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	p := &Process{
		t: t, args: args, Cmd: exec.Command(program, args...), exited: make(chan struct{}),
		Stdout: &output{lines: make(chan string, 1000)}, Stderr: &output{lines: make(chan string, 1000)},
	}
	// The race detector would sleep for a second before each exit.
	p.Cmd.Env = append(append(os.Environ(), ActAsCommand+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	if prepare != nil {
		prepare(p.Cmd)
	}
	stdout, err := p.Cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.Cmd.StderrPipe()
	require.NoError(t, err)
	if p.Cmd.Stdin == nil {
		p.Stdin, err = p.Cmd.StdinPipe()
		require.NoError(t, err)
	}
	require.NoError(t, p.Cmd.Start())
	go p.follow(stdout, stderr)
	t.Cleanup(p.end)
	return p
}

// Call runs leasewheel with args in this process, to its end. The variables of env that
// name a server or a store become flags: other tests run beside this one. A run that gets the lock
// needs Start: it waits for all children of its process, those of other tests too.
func Call(t *testing.T, env []string, args ...string) *Process {
	t.Helper()
	return CallWith(t, env, "", args...)
}

// CallWith is call with a standard input. A command that the machine held up, and that got no answer in
// time, is called again: a program's limits are shorter than a stall.
func CallWith(t *testing.T, env []string, stdin string, args ...string) *Process {
	t.Helper()
	for begin := time.Now(); ; {
		p := callOnce(t, env, stdin, args...)
		if !p.HeldUp || p.code != exit.Unavailable || !unanswered(p.Stderr.String()) || time.Since(begin) > Patience {
			t.Cleanup(p.end)
			return p
		}
	}
}

func callOnce(t *testing.T, env []string, stdin string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, args: withFlags(env, args), Stdout: &output{}, Stderr: &output{}, exited: make(chan struct{})}
	root := newRoot()
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&p.Stdout.text)
	root.SetErr(&p.Stderr.text)
	watch := startWatch()
	p.code = exit.Execute(root, p.args, &p.Stderr.text)
	p.HeldUp = watch.end()
	close(p.exited)
	return p
}

// withFlags returns args with the variables of env as flags, if the command has them.
func withFlags(env, args []string) []string {
	command, rest, err := newRoot().Find(slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == cobra.ShellCompNoDescRequestCmd
	}))
	if err != nil {
		return args
	}
	named := command.Flags().Lookup("store") == nil || slices.ContainsFunc(rest, func(arg string) bool { return arg == "--store" || arg == "--store-file" })
	var flags []string
	for _, variable := range env {
		switch name, value, _ := strings.Cut(variable, "="); {
		case name == "LEASEWHEEL_STORE" && !named:
			for url := range strings.FieldsSeq(value) {
				flags = append(flags, "--store", url)
			}
		case name == "LEASEWHEEL_PREFIX":
			flags = append(flags, "--prefix", value)
		}
	}
	return slices.Insert(slices.Clone(args), len(args)-len(rest), flags...)
}

// follow reads the process's output and then its end.
func (p *Process) follow(stdout, stderr io.Reader) {
	var readers sync.WaitGroup
	readers.Go(func() { p.Stdout.read(stdout) })
	readers.Go(func() { p.Stderr.read(stderr) })
	readers.Wait()
	err := p.Cmd.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		p.code = failed.ExitCode()
		if status := failed.Sys().(syscall.WaitStatus); status.Signaled() {
			p.code = 128 + int(status.Signal())
		}
	}
	close(p.exited)
}

// end makes sure that no part of the process outlives its test.
func (p *Process) end() {
	select {
	case <-p.exited:
	default:
		p.Cmd.Process.Kill() //nolint:errcheck // it may have ended since
		select {
		case <-p.exited:
		case <-time.After(Patience):
			p.t.Errorf("%q left something running that holds its output open", p.args)
		}
	}
	if p.t.Failed() {
		p.t.Logf("%q\nstdout:\n%sstderr:\n%s", p.args, p.Stdout, p.Stderr)
	}
}

// Wait returns the exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.code
	case <-time.After(Patience):
		require.FailNow(p.t, "the process does not end", "%q", p.args)
		return -1
	}
}

// Line returns the next line of standard output.
func (p *Process) Line() string {
	p.t.Helper()
	return p.next(p.Stdout)
}

// PIDLine reads a process id from standard output, and kills that process at the end of
// the test.
func (p *Process) PIDLine() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.Line())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) }) //nolint:errcheck // it is gone if all went well
	return pid
}

func (p *Process) next(o *output) string {
	p.t.Helper()
	select {
	case line, open := <-o.lines:
		require.True(p.t, open, "the output ended: %q", p.args)
		return line
	case <-time.After(Patience):
		require.FailNow(p.t, "no output", "%q", p.args)
		return ""
	}
}

// AwaitError returns the next line on standard error that contains text.
func (p *Process) AwaitError(text string) string {
	p.t.Helper()
	for {
		if line := p.next(p.Stderr); strings.Contains(line, text) {
			return line
		}
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Cmd.Process.Signal(sig))
}

// RequireOneLine asserts the form of every failure: one line, without a stack trace and
// without the secret.
func (p *Process) RequireOneLine(contains string) {
	p.t.Helper()
	text := p.Stderr.String()
	assert.Equal(p.t, 1, strings.Count(text, "\n"), "one line on standard error, not %q", text)
	assert.True(p.t, strings.HasPrefix(text, "leasewheel: "), text)
	assert.Contains(p.t, text, contains)
	assert.NotContains(p.t, text, Secret)
	assert.NotContains(p.t, text, "goroutine ")
}

// RequireReport asserts that leasewheel printed one message on standard error, besides a
// shell's messages about killed processes.
func (p *Process) RequireReport(contains string) {
	p.t.Helper()
	text := p.Stderr.String()
	assert.Equal(p.t, 1, strings.Count(text, "leasewheel: "), text)
	assert.Contains(p.t, text, contains)
	assert.NotContains(p.t, text, "goroutine ")
}

// RequireNamesItself asserts that shells complete the program under test by its own name, which its
// hints have too.
func RequireNamesItself(t *testing.T, program string) {
	t.Helper()
	script := Start(t, nil, "completion", "bash")
	assert.Equal(t, exit.OK, script.Wait())
	assert.Contains(t, script.Stdout.String(), "complete -o default -F __start_"+program+" "+program+"\n")
	refused := Call(t, nil, "run")
	assert.Equal(t, exit.Usage, refused.Wait())
	assert.Contains(t, refused.Stderr.String(), " "+program+" run --help")
}

// Secret is the password in the tests' URLs. No output may contain it.
const Secret = "hunter2"

// OnServer starts a redis-server and returns it with the environment that names
// it.
func OnServer(t *testing.T, c redistest.Config) (*redistest.Server, []string) {
	t.Helper()
	s := redistest.Start(t, c)
	return s, []string{"LEASEWHEEL_STORE=" + s.URL()}
}

// Gone reports whether no process with this id is left; one that is dead and not
// yet waited for counts as gone.
func Gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// Ask runs a command to its end and returns its output. It is run again if the server was to answer, and
// stood still for longer than the command waits.
func Ask(t *testing.T, env []string, code int, args ...string) string {
	t.Helper()
	p := Call(t, env, args...)
	for begin := time.Now(); code != exit.Unavailable && p.code == exit.Unavailable && unanswered(p.Stderr.String()) && time.Since(begin) < Patience; {
		p = Call(t, env, args...)
	}
	require.Equal(t, code, p.Wait(), "%s%s", p.Stdout, p.Stderr)
	if code == exit.OK || code == exit.NotHeld {
		assert.Empty(t, p.Stderr.String(), "nothing but the answer, and no progress where there is no terminal")
	}
	return p.Stdout.String()
}

// AskLines is ask for an output of very many lines.
func AskLines(t *testing.T, env []string, args ...string) []string {
	t.Helper()
	return slices.Collect(strings.Lines(Ask(t, env, exit.OK, args...)))
}

// FirstColumn returns the first column of a table.
func FirstColumn(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		if name, _, _ := strings.Cut(line, " "); name != "NAME" {
			b.WriteString(name + "\n")
		}
	}
	return b.String()
}

// OnQuorum starts three servers and returns them with the environment that names
// them.
func OnQuorum(t *testing.T) ([]*redistest.Server, []string) {
	t.Helper()
	var servers []*redistest.Server
	var urls []string
	for range 3 {
		s := redistest.Start(t, redistest.Config{})
		servers, urls = append(servers, s), append(urls, s.URL())
	}
	return servers, []string{"LEASEWHEEL_STORE=" + strings.Join(urls, " ")}
}

// Nowhere names a server that no test may contact.
var Nowhere = []string{"LEASEWHEEL_STORE=redis://:" + Secret + "@127.0.0.1:1"}
