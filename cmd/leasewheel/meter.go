package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// meterInterval is how often a meter repaints its line: often enough to look alive,
// rarely enough to cost nothing.
const meterInterval = 100 * time.Millisecond

// clearLine makes a terminal empty the line of the cursor.
const clearLine = "\r\x1b[K"

// meter shows one line of progress on a terminal and repaints it in place. On any other
// output it prints nothing, so that logs stay clean.
type meter struct {
	out   *os.File
	line  func() string
	shown bool
	notes chan string
	done  chan struct{}
	wait  sync.WaitGroup
}

// startMeter repaints the result of line on out, until stop. line is called from another
// goroutine, one call at a time; it returns one line, which a narrow terminal cuts off.
func startMeter(out *os.File, line func() string) *meter {
	m := &meter{out: out, line: line, shown: isTerminal(out), notes: make(chan string), done: make(chan struct{})}
	if m.shown {
		m.wait.Go(m.paint)
	}
	return m
}

// note prints a line that stays, above the one that is repainted.
func (m *meter) note(format string, args ...any) {
	if m.shown {
		m.notes <- fmt.Sprintf(format, args...)
	}
}

// stop clears the line and returns when nothing more will be printed. It may be called
// once.
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
			fmt.Fprint(m.out, clearLine)
			return
		case note := <-m.notes:
			fmt.Fprint(m.out, clearLine, note, "\n", m.fitting())
		case <-ticker.C:
			fmt.Fprint(m.out, clearLine, m.fitting())
		}
	}
}

// fitting returns the line, cut to the terminal's width: a wrapped line could not be
// repainted in place.
func (m *meter) fitting() string {
	line := m.line()
	width, _, err := term.GetSize(int(m.out.Fd()))
	if err != nil || width <= 0 {
		return line
	}
	used := len("^C") // which a terminal may echo behind the line, and must not wrap
	for i, r := range line {
		if used += columnsOf(r); used > width {
			return line[:i]
		}
	}
	return line
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
