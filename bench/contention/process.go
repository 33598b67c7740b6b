//go:build unix

package contention

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// order is the line of JSON on a process' standard input. The process works until the input
// ends.
type order struct {
	Board string `json:"board"`
	Spec  string `json:"spec"`
	Work  work   `json:"work"`
}

// report is a line of its standard output: {} once it is ready, and at the end its figures or
// an error.
type report struct {
	Seen  *share `json:"seen,omitempty"`
	Error string `json:"error,omitempty"`
}

// process is another process at work.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	stderr  strings.Builder
	reports chan report // closed at the end of its output
	failed  context.CancelCauseFunc
}

// errEnded is returned for a process that has ended without its last report.
var errEnded = errors.New("a process of contenders has ended too early")

// endLimit bounds the exit of a process, which is killed after that. Only one that hangs reaches it.
const endLimit = time.Minute

func startProcess(way Way, board *Board, w work, failed context.CancelCauseFunc) (*process, error) {
	p := &process{cmd: way.Command(), reports: make(chan report, 2), failed: failed}
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin = stdin
	go p.read(stdout)
	if err := json.NewEncoder(stdin).Encode(order{board.Path(), way.Spec, w}); err != nil {
		_, ended := p.end()
		return nil, errors.Join(err, ended)
	}
	return p, nil
}

// read reads the reports. A reported failure ends the measurement.
func (p *process) read(stdout io.Reader) {
	defer close(p.reports)
	decoder := json.NewDecoder(stdout)
	for range cap(p.reports) {
		var r report
		if err := decoder.Decode(&r); err != nil {
			p.failed(errEnded)
			return
		}
		if r.Error != "" {
			p.failed(errors.New(r.Error))
		}
		p.reports <- r
	}
}

// awaitReady waits for the first report. If it is a failure, read has ended ctx, and end
// returns the error.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.reports:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end stops the process and returns its last report.
func (p *process) end() (*share, error) {
	p.stdin.Close()
	kill := time.AfterFunc(endLimit, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	var last report
	for r := range p.reports {
		last = r
	}
	waited := p.cmd.Wait()
	switch {
	case last.Error != "":
		return nil, errors.New(last.Error)
	case waited != nil || last.Seen == nil:
		return nil, fmt.Errorf("a process of contenders has ended (%v): %s", p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
	}
	return last.Seen, nil
}

// Serve does the work of a process that [Way.Command] has started, by its standard
// streams, until the input ends. open opens the locks by [Way.Spec]. An error is also reported
// to the measuring process.
func Serve(in io.Reader, out io.Writer, open func(ctx context.Context, spec string) (Locks, error)) error {
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, input)
	}()
	encoder := json.NewEncoder(out)
	seen, err := serve(ctx, line, func() error { return encoder.Encode(report{}) }, open)
	answer := report{Seen: seen}
	if err != nil {
		answer = report{Error: err.Error()}
	}
	return errors.Join(err, encoder.Encode(answer))
}

func serve(ctx context.Context, line []byte, ready func() error, open func(context.Context, string) (Locks, error)) (seen *share, err error) {
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	board, err := OpenBoard(o.Board)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	locks, err := open(ctx, o.Spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	if err := ready(); err != nil {
		return nil, err
	}
	return o.Work.run(ctx, board, locks)
}
