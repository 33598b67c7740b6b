package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
)

// adoptOrphans makes this process the parent of every descendant that loses its own. So
// descendants can be found however they were started, and the dead are reaped at once;
// the first process of a container often reaps none.
func adoptOrphans() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) //nolint:errcheck // Linux has it since 3.4
}

// guard is a process between this one and the command. It ends the command if this
// process is killed. If the guard is killed, this process adopts the command.
type guard struct {
	pid    int
	others []descendant // that descend from this process, and not from the command
	out    *json.Encoder
	in     *json.Decoder
}

// keep starts a guard, which starts the command, and reports the command's changes of
// state until it is gone.
func (c *child) keep(spec childSpec, started chan<- error) {
	c.guard.others = descendants(os.Getpid(), nil) // those of a shell that has become this process by exec
	adoptOrphans()
	first, err := c.guard.start("/proc/self/exe", spec)
	if err != nil {
		c.killAll()
		started <- err
		return
	}
	c.pid = first.PID
	close(started)
	for {
		var next guardReport
		if err := c.guard.in.Decode(&next); err != nil {
			break // the guard was killed
		}
		c.report(next.Status)
		if !next.Status.Stopped() {
			waitAll(0, nil, nil)
			return
		}
	}
	known := false
	waitAll(c.pid, nil, func(status unix.WaitStatus) {
		known = !status.Stopped()
		c.report(status)
	})
	if !known { // the guard was killed after it had reaped the command
		c.report(unix.WaitStatus(unix.SIGKILL))
	}
}

// killAll kills all remains of a failed start: a guard that is killed before its first report
// may have started the command.
func (c *child) killAll() {
	for {
		remains := descendants(os.Getpid(), c.guard.others)
		if len(remains) == 0 {
			return
		}
		for _, p := range remains {
			unix.Kill(p.pid, unix.SIGKILL) //nolint:errcheck // it may have ended
		}
		<-time.After(time.Millisecond)
	}
}

// start starts the guard, from this program's file, and the command, and returns the first report.
func (g *guard) start(program string, spec childSpec) (first guardReport, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return first, fmt.Errorf("its guard's socket: %w", err)
	}
	ours := os.NewFile(uintptr(ends[0]), "guard")
	files := []uintptr{0, 1, 2}
	for next := 3; passedOn(next) != none || passedOn(next+1) != none; next++ { // to COMMAND, at their numbers
		files = append(files, passedOn(next))
	}
	args := []string{"leasewheel", guardCommand, strconv.Itoa(len(files))}
	files = append(files, uintptr(ends[1]))
	if spec.presence != nil {
		files = append(files, spec.presence.Fd())
	}
	g.pid, err = syscall.ForkExec(program, args, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   process.OwnGroup(0), // the terminal's signals are not for the guard
	})
	unix.Close(ends[1]) // before the first report is read: a guard that has ended ends that

	if errors.Is(err, unix.ENOENT) { // which of COMMAND would be a missing interpreter
		err = errors.New("/proc is not mounted")
	}
	if err != nil {
		return first, errors.Join(fmt.Errorf("its guard: %w", err), ours.Close())
	}
	g.out, g.in = json.NewEncoder(ours), json.NewDecoder(ours)
	order := guardOrder{Path: []byte(spec.path), Action: spec.policy.action, Grace: spec.policy.grace}
	order.Argv, order.Env = []byte(strings.Join(spec.argv, "\x00")), []byte(strings.Join(spec.env, "\x00"))
	if err = g.out.Encode(order); err == nil {
		err = g.in.Decode(&first)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("its guard ended: %w", err)
	case first.Errno != 0:
		err = first.Errno
	}
	if err != nil {
		return first, errors.Join(err, ours.Close())
	}
	return first, nil
}

// none is the number of no file.
const none = ^uintptr(0)

// passedOn returns the number of a file that this process got from its caller, as a redirection of a
// shell or a jobserver of make, and none for its own, which are closed on exec.
func passedOn(file int) uintptr {
	if flags, err := unix.FcntlInt(uintptr(file), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		return none
	}
	return uintptr(file)
}

// ending reports to the guard that the command is being ended: if this process is killed
// now, only the rest of the grace remains.
func (c *child) ending(action lossAction) {
	c.guard.out.Encode(guardOrder{Action: action}) //nolint:errcheck,errchkjson // it may have been killed
}

// findStrays returns the processes that descend from this one, without the guard and those that were
// there before the command.
func (c *child) findStrays() (pids []int) {
	for _, p := range descendants(os.Getpid(), c.guard.others) {
		if p.pid != c.guard.pid {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
