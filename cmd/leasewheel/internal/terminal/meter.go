// Package terminal shows progress on a terminal.
package terminal

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// meterInterval is how often a meter repaints its line: often enough to look alive,
// rarely enough to cost nothing.
const meterInterval = 100 * time.Millisecond

// ClearLine makes a terminal empty the line of the cursor.
const ClearLine = "\r\x1b[K"

// Meter shows one line of progress on a terminal and repaints it in place. On any other
// output it prints nothing, so that logs stay clean. In the background it prints notes only:
// the cursor's line is the shell's prompt, or another job's.
type Meter struct {
	out   *os.File
	line  func() string
	shown bool
	notes chan string
	done  chan struct{}
	wait  sync.WaitGroup
}

// StartMeter repaints the result of line on out, until stop. line is called from another
// goroutine, one call at a time; it returns one line, which a narrow terminal cuts off.
func StartMeter(out *os.File, line func() string) *Meter {
	m := &Meter{out: out, line: line, shown: Is(out), notes: make(chan string), done: make(chan struct{})}
	if m.shown {
		m.wait.Go(m.paint)
	}
	return m
}

// Note prints a line that stays, above the one that is repainted.
func (m *Meter) Note(format string, args ...any) {
	if m.shown {
		m.notes <- fmt.Sprintf(format, args...)
	}
}

// Stop clears the line and returns when nothing more will be printed. It may be called
// once.
func (m *Meter) Stop() {
	close(m.done)
	m.wait.Wait()
}

func (m *Meter) paint() {
	ticker := time.NewTicker(meterInterval)
	defer ticker.Stop()
	for {
		select {
		case <-m.done:
			m.print("", "")
			return
		case note := <-m.notes:
			m.print(note+"\n", m.fitting())
		case <-ticker.C:
			m.print("", m.fitting())
		}
	}
}

// print writes a note in place of the line, and the line below it.
func (m *Meter) print(note, line string) {
	switch {
	case note == "" && !takesOutput(m.out): // Stop would wait, and with it a run that has acquired its lock
	case InForeground(m.out):
		fmt.Fprint(m.out, ClearLine, note, line)
	case note != "": // a write of nothing stops a job on a terminal with tostop, too
		fmt.Fprint(m.out, note)
	}
}

// fitting returns the line, cut to the terminal's width: a wrapped line could not be
// repainted in place.
func (m *Meter) fitting() string {
	line := m.line()
	width := Columns(m.out)
	if width <= 0 {
		return line
	}
	used := len("^C") // which a terminal may echo behind the line, and must not wrap
	for i, r := range line {
		if used += output.ColumnsOf(r); used > width {
			return line[:i]
		}
	}
	return line
}

// Is reports whether a file is a terminal that takes control sequences, which TERM=dumb does not.
func Is(f *os.File) bool { return os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) }

// Columns returns the width of a file that is a terminal, 0 of any other.
func Columns(f *os.File) int {
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Bar draws how much of total is done, width characters wide.
func Bar(done, total float64, width int) string {
	full := 0
	if total > 0 {
		full = int(min(max(done/total, 0), 1) * float64(width))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
