//go:build unix

package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/lock"
)

// groupPoll is how often the processes that outlive an ended command are checked. No
// event reports the end of processes that are not our children.
const groupPoll = 10 * time.Millisecond

// reapLimit is how long a killed group may still seem alive. No process survives SIGKILL,
// but a dead one exists until its parent has reaped it.
const reapLimit = time.Second

// errHeldTooLong ends a command that used up --max-hold.
var errHeldTooLong = errors.New("the time of --max-hold is over")

// errRunsOut ends a command whose lease was not renewed. The remaining time is for the
// command to finish.
var errRunsOut = errors.New("not renewed, and about to run out")

// errRanOut ends a command whose lease ended while this process did not run.
var errRanOut = errors.New("lost, not renewed in time")

// supervisor ties a command to its lease: it passes signals on, and ends the command when
// the lease ends.
//
// The lease's time is divided backwards from its end. A command whose lease is not
// renewed gets SIGTERM early enough for grace to pass, and for SIGKILL to end the rest of
// its group, before the lease runs out and another owner may hold the lock.
type supervisor struct {
	child    *child
	lease    *lock.Lease
	signals  <-chan os.Signal
	terminal *controllingTerminal
	policy   lossPolicy
	maxHold  time.Duration // zero: no limit
	say      func(format string, args ...any)
	stderr   io.Writer

	ending     error            // why the command is being ended; nil: it is not
	action     lossAction       // how, once ending is set
	reapEnd    <-chan time.Time // until when a killed group is waited for
	foreground bool             // the command has the terminal's foreground, or had it when we were suspended
	stopping   bool             // the command got SIGTSTP from us, and has not stopped
	halted     bool             // the command has stopped, and we have not continued it
	suspended  bool             // we stopped ourselves, with the command
}

// lossPolicy is what happens to the command when its lease ends first.
type lossPolicy struct {
	action lossAction
	grace  time.Duration // between SIGTERM and SIGKILL
	margin time.Duration // between SIGKILL and the end of the lease
}

// lossAction is how a command is ended when its lock is lost.
type lossAction string

const (
	lossTerm   lossAction = "term"   // SIGTERM, then SIGKILL after a grace
	lossKill   lossAction = "kill"   // SIGKILL at once
	lossIgnore lossAction = "ignore" // not at all
)

// lead is how long before the end of its lease a command must get its signal.
func (p lossPolicy) lead() time.Duration {
	if p.action == lossTerm {
		return p.grace + p.margin
	}
	return p.margin
}

// supervise returns when the command is gone. If the command was being ended, its whole
// group and all its descendants are gone too. ending is why it was ended, or nil if it
// ended by itself.
func (s *supervisor) supervise() (status unix.WaitStatus, ending error) {
	lost := s.lease.Lost()
	expiring := time.NewTimer(s.timeToSignal())
	defer expiring.Stop()
	tooLong := newStoppedTimer()
	defer tooLong.Stop()
	if s.maxHold > 0 {
		tooLong.Reset(s.maxHold)
	}
	kill := newStoppedTimer()
	defer kill.Stop()

	for {
		select {
		case status = <-s.child.events:
			if !status.Stopped() {
				s.terminal.reclaim(s.child.pid)
				s.awaitAll(kill)
				return status, s.ending
			}
			s.stopped(status.StopSignal())

		case sig := <-s.signals:
			if sig == unix.SIGCONT && s.timeToSignal() <= 0 {
				s.runOut(kill) // before the command continues
			}
			s.pass(sig.(syscall.Signal))

		case <-lost:
			lost = nil
			s.end(s.lease.Err(), kill)

		case <-expiring.C:
			if rest := s.timeToSignal(); rest > 0 { // renewed meanwhile
				expiring.Reset(rest)
			} else {
				s.runOut(kill)
			}

		case <-tooLong.C:
			s.end(errHeldTooLong, kill)

		case <-kill.C:
			s.kill()
		}
	}
}

// timeToSignal is how long the command may still run if the lease is not renewed.
func (s *supervisor) timeToSignal() time.Duration {
	return time.Until(s.lease.Until()) - s.policy.lead()
}

// runOut begins to end a command whose lease was not renewed in time, unless that is ignored until
// the lease is lost.
func (s *supervisor) runOut(kill *time.Timer) {
	switch {
	case s.policy.action == lossIgnore:
	case !s.lease.Valid(): // we were stopped
		s.end(errRanOut, kill)
	default:
		s.end(errRunsOut, kill)
	}
}

// ends reports whether the command is being ended.
func (s *supervisor) ends() bool { return s.ending != nil && s.action != lossIgnore }

// end begins to end the command, once, because of reason.
func (s *supervisor) end(reason error, kill *time.Timer) {
	if s.ends() {
		return
	}
	s.ending, s.action = reason, s.policy.action
	if errors.Is(reason, errHeldTooLong) && s.action == lossIgnore {
		s.action = lossTerm // the user set this limit: it is no loss to ignore
	}
	why := reason.Error()
	if lost, ok := errors.AsType[*lock.LostError](reason); ok {
		why = "lost, " + lost.Cause.String()
	}
	if s.ends() {
		s.child.ending(s.action)
	}
	switch s.action {
	case lossTerm:
		fmt.Fprintf(s.stderr, "leasewheel: lock %q: %s; sending SIGTERM to the command, SIGKILL in %v\n", s.lease.Name(), why, s.policy.grace)
		s.terminate(unix.SIGTERM, s.sendAll)
		kill.Reset(s.policy.grace)
	case lossKill:
		fmt.Fprintf(s.stderr, "leasewheel: lock %q: %s; sending SIGKILL to the command\n", s.lease.Name(), why)
		s.kill()
	case lossIgnore:
		fmt.Fprintf(s.stderr, "leasewheel: lock %q: %s; the command runs on without it\n", s.lease.Name(), why)
	}
}

// awaitAll waits, if the command was being ended, until no process of its group and none
// of its descendants is left, and kills the rest when kill fires. A command that ended by
// itself may leave processes behind, as under a shell.
func (s *supervisor) awaitAll(kill *time.Timer) {
	if !s.ends() {
		return
	}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for !s.child.gone() {
		select {
		case <-poll.C:
			if s.reapEnd != nil { // a process may have forked as it was killed
				s.child.signalAll(unix.SIGKILL) //nolint:errcheck // kill has reported it
			}
		case <-kill.C:
			s.kill()
		case <-s.reapEnd:
			return
		}
	}
}

// kill sends SIGKILL to the group and to the descendants that have left it.
func (s *supervisor) kill() {
	s.say("sending SIGKILL")
	s.sendAll(unix.SIGKILL)
	s.reapEnd = time.After(reapLimit)
}

// pass passes a signal to the command. SIGTSTP, which a terminal sends for Ctrl-Z,
// suspends command and leasewheel together: a shell stops whole jobs. SIGCONT resumes
// both.
func (s *supervisor) pass(sig syscall.Signal) {
	switch sig {
	case unix.SIGTSTP:
		s.send(unix.SIGTSTP)
		if s.halted {
			s.suspend()
		} else {
			s.stopping = true // until it stops: it may handle the signal, and go on under its lock
		}
	case unix.SIGCONT:
		s.resume()
	default:
		s.say("passing on %v", unix.SignalName(sig))
		if sig == unix.SIGTERM || sig == unix.SIGHUP {
			s.terminate(sig, s.send)
		} else {
			s.send(sig)
		}
	}
}

// terminate sends SIGTERM or SIGHUP, and SIGCONT as systemd does: a stopped process takes no other.
func (s *supervisor) terminate(sig syscall.Signal, send func(syscall.Signal)) {
	send(sig)
	send(unix.SIGCONT)
	s.halted = false
}

// stopped handles a stop of the command that the terminal or we have caused. Any other
// stop is deliberate and stays.
func (s *supervisor) stopped(by syscall.Signal) {
	s.halted = true
	switch {
	case by == unix.SIGTTIN || by == unix.SIGTTOU:
		// It wants the terminal. In the background, wait like any other job
		// until the shell brings us to the foreground.
		if s.foreground = s.terminal.giveForeground(s.child.pid); s.foreground {
			s.halted = false
			s.send(unix.SIGCONT)
		} else if s.terminal != nil {
			s.foreground = true
			s.suspend()
		}
	case by == unix.SIGTSTP || s.stopping:
		if s.foreground = s.terminal.reclaim(s.child.pid); s.foreground || s.stopping {
			s.suspend()
		}
	}
}

// suspend stops this process, and with it the renewals: a job that stays
// suspended for longer than its lease loses its lock. SIGCONT resumes it. A command that
// is being ended suspends nothing: SIGKILL would come too late for its other processes.
func (s *supervisor) suspend() {
	if s.ends() {
		return
	}
	s.suspended, s.stopping = true, false
	if err := s.child.kill(unix.Getpid(), unix.SIGSTOP); err != nil {
		s.say("cannot suspend: %v", err)
	}
}

// resume continues a suspended command, or one that is about to stop.
func (s *supervisor) resume() {
	if !s.suspended && !s.stopping {
		return
	}
	if s.suspended && s.foreground {
		s.terminal.giveForeground(s.child.pid)
	}
	s.suspended, s.stopping, s.halted = false, false, false
	s.send(unix.SIGCONT)
}

// send sends a signal to the command's group.
func (s *supervisor) send(sig syscall.Signal) { s.reportUnsent(sig, s.child.signal(sig)) }

// sendAll sends a signal to the group and to the descendants that have left it.
func (s *supervisor) sendAll(sig syscall.Signal) { s.reportUnsent(sig, s.child.signalAll(sig)) }

func (s *supervisor) reportUnsent(sig syscall.Signal, err error) {
	if err != nil {
		fmt.Fprintf(s.stderr, "leasewheel: cannot send %s to the command: %v\n", unix.SignalName(sig), err)
	}
}

// newStoppedTimer returns a timer that does not run until it is reset.
func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// catchSignals returns the channel of the signals that run passes on or handles, and a
// function that stops this. SIGHUP or SIGINT that was ignored at the start, as under nohup(1),
// stays ignored, by the command too.
func catchSignals() (signals <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 16)
	interrupt.Catch(c, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT)
	interrupt.Catch(make(chan os.Signal, 1), unix.SIGPIPE) // a standard error that nothing reads must not end run
	return c, func() { signal.Stop(c) }
}

// endsWaiting reports whether sig, which comes before the command has started, ends the
// waiting for the lock.
func endsWaiting(sig os.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		return true
	}
	return false
}
