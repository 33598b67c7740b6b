package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// meterInterval is how often a meter repaints its line: often enough to look
// alive, seldom enough to cost nothing.
const meterInterval = 100 * time.Millisecond

// meter shows one line of progress on a terminal and repaints it in place. On
// anything that is not a terminal it prints nothing, so that logs stay clean.
type meter struct {
	out  io.Writer
	line func() string
	done chan struct{}
	wait sync.WaitGroup
}

// startMeter repaints what line returns, on out, until stop. line is called
// from another goroutine, one call at a time.
func startMeter(out *os.File, line func() string) *meter {
	m := &meter{out: out, line: line, done: make(chan struct{})}
	if isTerminal(out) {
		m.wait.Go(m.paint)
	}
	return m
}

// stop clears the line and returns when nothing more will be printed. It may be
// called once.
func (m *meter) stop() {
	close(m.done)
	m.wait.Wait()
}

func (m *meter) paint() {
	ticker := time.NewTicker(meterInterval)
	defer ticker.Stop()
	for {
		select {
		case <-m.done:
			fmt.Fprint(m.out, "\r\x1b[K")
			return
		case <-ticker.C:
			fmt.Fprint(m.out, "\r\x1b[K"+m.line())
		}
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// bar draws how much of total is done, width characters wide.
func bar(done, total float64, width int) string {
	full := 0
	if total > 0 {
		full = int(min(max(done/total, 0), 1) * float64(width))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
