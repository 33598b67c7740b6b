//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// actor is a worker process as the demo sees it.
type actor struct {
	id     int
	cmd    *exec.Cmd
	orders io.WriteCloser
	stderr strings.Builder // complete once the end was reported

	doomed bool // its end is our doing
}

// actorEvent is something that an actor told, or its end: then over is set and err
// is what was wrong with it.
type actorEvent struct {
	actor *actor
	workerEvent
	over bool
	err  error
}

// startActor starts a worker process with a job. What it tells goes to events, its
// end last.
func startActor(id int, job workerJob, events chan<- actorEvent) (*actor, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{id: id, cmd: exec.Command(program, workerCommand)}
	a.cmd.Stderr = &a.stderr
	output, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if a.orders, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go a.relay(output, events)
	return a, json.NewEncoder(a.orders).Encode(job)
}

// relay passes on what the actor tells, until its end.
func (a *actor) relay(output io.Reader, events chan<- actorEvent) {
	var broken error
	for lines := bufio.NewScanner(output); lines.Scan(); {
		e := actorEvent{actor: a}
		if err := json.Unmarshal(lines.Bytes(), &e.workerEvent); err != nil {
			broken = fmt.Errorf("it said %q", lines.Text())
			continue
		}
		events <- e
	}
	err := a.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%w %s", err, strings.TrimSpace(a.stderr.String()))
	} else {
		err = broken
	}
	events <- actorEvent{actor: a, over: true, err: err}
}

// order gives the actor an order. An actor that is gone takes none; its end is
// told by its last event.
func (a *actor) order(text string) {
	io.WriteString(a.orders, text+"\n") //nolint:errcheck // see above
}

func (a *actor) signal(sig syscall.Signal) error { return a.cmd.Process.Signal(sig) }
