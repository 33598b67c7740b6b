package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
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
	pid int
	out *json.Encoder
	in  *json.Decoder
}

// keep starts a guard, which starts the command, and reports the command's changes of
// state until it is gone.
func (c *child) keep(spec childSpec, started chan<- error) {
	adoptOrphans()
	first, err := c.guard.start(spec)
	if err != nil {
		killDescendants()
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

// killDescendants kills all remains of a failed start: a guard that is killed before its
// first report may have started the command.
func killDescendants() {
	for {
		pids := descendants(os.Getpid())
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended
		}
		<-time.After(time.Millisecond)
	}
}

// start starts the guard and the command, and returns the first report.
func (g *guard) start(spec childSpec) (first guardReport, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return first, fmt.Errorf("its guard's socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "guard"), os.NewFile(uintptr(ends[1]), "guarded")
	defer theirs.Close()
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs}
	if spec.presence != nil {
		files = append(files, spec.presence)
	}
	process, err := os.StartProcess("/proc/self/exe", []string{"leasewheel", guardCommand}, &os.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   process.OwnGroup(0), // the terminal's signals are not for the guard
	})
	if err != nil {
		return first, errors.Join(errors.New("its guard: "+withoutName(err).Error()), ours.Close())
	}
	g.pid = process.Pid
	process.Release() //nolint:errcheck // wait4 reaps it
	g.out, g.in = json.NewEncoder(ours), json.NewDecoder(ours)
	order := guardOrder{Path: []byte(spec.path), Argv: rawBytes(spec.argv), Env: rawBytes(spec.env), Action: spec.policy.action, Grace: spec.policy.grace}
	if err = g.out.Encode(order); err == nil {
		err = g.in.Decode(&first)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("its guard ended: %w", err)
	case first.Errno != 0:
		err = first.Errno
	case first.Failure != "":
		err = errors.New(first.Failure)
	}
	if err != nil {
		return first, errors.Join(err, ours.Close())
	}
	return first, nil
}

// ending reports to the guard that the command is being ended: if this process is killed
// now, only the rest of the grace remains.
func (c *child) ending(action lossAction) {
	c.guard.out.Encode(guardOrder{Action: action}) //nolint:errcheck,errchkjson // it may have been killed
}

// findStrays returns the processes that descend from this one, without the guard.
func (c *child) findStrays() []int {
	return slices.DeleteFunc(descendants(os.Getpid()), func(pid int) bool { return pid == c.guard.pid })
}
