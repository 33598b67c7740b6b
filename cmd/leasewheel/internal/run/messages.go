//go:build unix

package run

import (
	"bytes"
	"io"
)

// mostMessages is how many lines wait for a standard error that takes none. Further ones are dropped.
const mostMessages = 1000

// messages prints lines on standard error without a wait. A terminal that Ctrl-S has stopped, or a
// pipe that is not read, would otherwise keep signals from the command, which then outlives its lock.
type messages struct {
	lines chan []byte // nil is the end
	ended chan struct{}
}

func newMessages(out io.Writer) *messages {
	m := &messages{make(chan []byte, mostMessages), make(chan struct{})}
	go func() {
		defer close(m.ended)
		for line := <-m.lines; line != nil; line = <-m.lines {
			out.Write(line) //nolint:errcheck // a closed standard error ends nothing
		}
	}()
	return m
}

func (m *messages) Write(line []byte) (int, error) {
	select {
	case m.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// end returns when all lines are printed. Later ones are not.
func (m *messages) end() {
	m.lines <- nil
	<-m.ended
}
