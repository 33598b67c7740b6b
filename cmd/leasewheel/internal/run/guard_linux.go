package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
)

// guardCommand is the hidden subcommand under which run starts itself as a guard. Its argument is the
// number of its end of the socket that connects it to leasewheel run. The next file, which stays open,
// keeps locks in files until the guard has ended the command of a killed leasewheel run.
const guardCommand = "run-guard"

// guardOrder is a message to the guard: first the command to start, later that the
// command is being ended, and how. The path, and the arguments and variables with a NUL between them,
// are bytes: as strings, those that are not UTF-8 would change in JSON.
type guardOrder struct {
	Path   []byte `json:",omitempty"`
	Argv   []byte `json:",omitempty"`
	Env    []byte `json:",omitempty"`
	Action lossAction
	Grace  time.Duration
}

// guardReport is a message of the guard: first the command's process or why there is
// none, then the command's changes of state.
type guardReport struct {
	PID    int
	Errno  syscall.Errno
	Status unix.WaitStatus
}

// GuardCommands makes the hidden command of the guard, which ends the program if leasewheel is
// killed.
func GuardCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    guardCommand,
		Short:  "The process that ends the command if leasewheel run is killed",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := strconv.Atoi(strings.Join(args, ""))
			socket := os.NewFile(uintptr(number), "guarded")
			unix.CloseOnExec(number)
			unix.CloseOnExec(number + 1) // if locks are in files
			g := &guarding{out: json.NewEncoder(socket), in: json.NewDecoder(socket)}
			if err != nil || g.in.Decode(&g.order) != nil {
				return exit.UsageError(cmd, errors.New("only leasewheel run starts this command"))
			}
			g.run()
			return nil
		},
	}}
}

// guarding is a running guard. While a lease is valid, leasewheel run keeps the grace in
// reserve, so the command is gone before the lease has run out.
type guarding struct {
	out   *json.Encoder
	in    *json.Decoder
	order guardOrder
	child *child

	mu     sync.Mutex // guards the fields below
	over   bool       // the command has ended by itself: nothing is ended any more
	action lossAction // how the command is being ended; empty: it is not
	since  time.Time  // when that began
}

// run starts the command and returns when no descendant is left. If the command ends by
// itself, the process ends at once: processes that the command leaves behind keep
// running.
func (g *guarding) run() {
	catchSignals() // and drop them: the command gets them from leasewheel run
	// The kernel sends the command its signal when this thread ends, not the process.
	runtime.LockOSThread()
	adoptOrphans()
	pid, err := syscall.ForkExec(string(g.order.Path), strings.Split(string(g.order.Argv), "\x00"), &syscall.ProcAttr{
		Env:   strings.Split(string(g.order.Env), "\x00"),
		Files: []uintptr{0, 1, 2},
		Sys:   process.OwnGroup(g.order.Action.orphaned()),
	})
	if err != nil {
		number, _ := errors.AsType[syscall.Errno](err)
		g.report(guardReport{Errno: cmp.Or(number, unix.ENOEXEC)})
		return
	}
	g.child = newChild(pid)
	g.report(guardReport{PID: g.child.pid})
	go g.listen()
	waitAll(g.child.pid, awaitChild, func(status unix.WaitStatus) {
		if g.changed(status) {
			os.Exit(exit.OK)
		}
	})
}

// changed reports a change of the command's state, and returns whether it has ended by itself. That
// is recorded first: leasewheel run may be gone as soon as it has the report.
func (g *guarding) changed(status unix.WaitStatus) (over bool) {
	g.mu.Lock()
	over = !status.Stopped() && g.action == ""
	g.over = over
	g.mu.Unlock()
	g.report(guardReport{Status: status})
	return over
}

// awaitChild returns when a child has changed its state. It does not reap: a guard that
// is killed while it waits leaves the command's exit code to leasewheel run.
func awaitChild() {
	for errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// report sends a report. If leasewheel run is gone, listen detects it.
func (g *guarding) report(r guardReport) { g.out.Encode(r) } //nolint:errcheck,errchkjson // see above

// listen records orders until leasewheel run is gone. Then it ends the command.
func (g *guarding) listen() {
	for {
		var order guardOrder
		if err := g.in.Decode(&order); err != nil {
			break
		}
		g.begin(order.Action)
	}
	if g.begin(g.order.Action) {
		g.end()
	}
}

// begin records how the command is being ended from now on, once, unless it is over.
func (g *guarding) begin(action lossAction) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.action == "" && !g.over {
		g.action, g.since = action, time.Now()
	}
	return !g.over
}

func (g *guarding) state() (action lossAction, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.action, g.since
}

// end ends the command and its descendants. It does not return: the process ends when
// none is left.
func (g *guarding) end() {
	action, since := g.state()
	switch action {
	case lossIgnore:
		os.Exit(exit.OK)
	case lossTerm:
		g.child.signalAll(unix.SIGTERM) //nolint:errcheck // SIGKILL follows
		g.child.signalAll(unix.SIGCONT) //nolint:errcheck // a stopped process takes no SIGTERM
		<-time.After(g.order.Grace - time.Since(since))
	}
	for {
		g.child.signalAll(unix.SIGKILL) //nolint:errcheck // it is repeated
		<-time.After(groupPoll)
	}
}
