//go:build unix

package demo

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

// actor is a worker process of the demo.
type actor struct {
	id     int
	cmd    *exec.Cmd
	orders io.WriteCloser
	stderr strings.Builder // complete once the end was reported

	doomed bool // the demo ends it
}

// actorEvent is an event of an actor, or its end: then over is set and err is its error.
type actorEvent struct {
	actor *actor
	workerEvent
	over bool
	err  error
}

// startActor starts a worker process with a job. Its events go to events, its end last.
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

// relay passes on the actor's events, until its end.
func (a *actor) relay(output io.Reader, events chan<- actorEvent) {
	var broken error
	for lines := bufio.NewScanner(output); lines.Scan(); {
		e := actorEvent{actor: a}
		if err := json.Unmarshal(lines.Bytes(), &e.workerEvent); err != nil {
			broken = fmt.Errorf("its output is %q", lines.Text())
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

// order sends the actor an order. It ignores errors: an actor that is gone reports its
// end by its last event.
func (a *actor) order(text string) {
	io.WriteString(a.orders, text+"\n") //nolint:errcheck // see above
}

func (a *actor) signal(sig syscall.Signal) error { return a.cmd.Process.Signal(sig) }
