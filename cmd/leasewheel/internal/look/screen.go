package look

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
)

// screen draws refreshes on a terminal, each over the one before, and leaves the lines
// above as they are.
type screen struct {
	out      *os.File
	interval time.Duration
	drawn    int // lines of the last refresh
	width    int // of the terminal, when they were drawn
	height   int
}

func newScreen(out *os.File, interval time.Duration) *screen {
	return &screen{out: out, interval: interval}
}

// The size of a terminal that does not report one.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// show draws a refresh. In the background, where others have written around the last one, it is a
// line.
func (s *screen) show(r *refresh) error {
	if !terminal.InForeground(s.out) {
		s.drawn = 0
		return r.writeLine(s.out)
	}
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = defaultWidth, defaultHeight
	}
	var frame strings.Builder
	switch {
	case s.drawn > 0 && (width != s.width || height != s.height):
		frame.WriteString("\x1b[H\x1b[2J") // the terminal may have wrapped the lines anew
	case s.drawn > 0:
		fmt.Fprintf(&frame, "\x1b[%dA\r", s.drawn)
	}
	// A line in the last column wraps on some terminals; the cursor is in the last row.
	lines := r.lines(width-1, height-1, s.interval)
	for _, line := range lines {
		frame.WriteString(line + "\x1b[K\n")
	}
	frame.WriteString("\x1b[J")
	s.drawn, s.width, s.height = len(lines), width, height
	_, err = s.out.WriteString(frame.String())
	return err
}

// end clears the line below the last refresh, where the terminal has echoed Ctrl-C as ^C,
// for the shell's prompt.
func (s *screen) end() error {
	if s.drawn == 0 {
		return nil
	}
	_, err := s.out.WriteString(terminal.ClearLine)
	return err
}

// lines returns the refresh as lines that fit into width columns and height rows.
func (r *refresh) lines(width, height int, interval time.Duration) []string {
	var rows []watchedLock
	for _, v := range r.views {
		rows = append(rows, v.rows()...)
	}
	slices.SortStableFunc(rows, func(a, b watchedLock) int {
		return cmp.Or(cmp.Compare(b.info.WaiterCount, a.info.WaiterCount), cmp.Compare(a.info.Name, b.info.Name))
	})
	lines := []string{fmt.Sprintf("%s  every %v  %s", r.at.Format(time.TimeOnly), interval, countsOf(rows))}
	for _, v := range r.views {
		if v.err == nil {
			continue
		}
		text := output.OneLine(v.err)
		if !v.at.IsZero() {
			text = fmt.Sprintf("%s old: %s", sinceThen(v.at, r.at), text)
		}
		lines = append(lines, text)
	}
	if len(rows) > 0 {
		lines = append(lines, "")
		left := max(height-len(lines)-1, 1) // without the heading
		shown := rows
		if len(rows) > left {
			shown = rows[:max(left-1, 0)]
		}
		lines = append(lines, table(narrowed(cells(shown), width), width)...)
		if more := int64(len(rows) - len(shown)); more > 0 {
			lines = append(lines, fmt.Sprintf("and %s more; a PATTERN narrows the list", output.Grouped(more)))
		}
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return lines[:min(len(lines), max(height, 1))]
}

// cells returns the table of the locks, with its heading. Times are in whole seconds.
func cells(rows []watchedLock) [][]string {
	for i, row := range rows {
		if info := *row.info; info.TTL > time.Second {
			info.TTL = output.Seconds(info.TTL)
			rows[i].info = &info
		}
	}
	return tableOf(rows, wholeSeconds)
}

// wholeSeconds writes an age so that the columns keep their widths between refreshes.
func wholeSeconds(since, now time.Time) string { return output.Seconds(now.Sub(since)).String() }

// readableWidth is how many columns of a name or an owner are enough to know it by.
const readableWidth = 14

// narrowed leaves columns out, the least important first, until names and owners are
// readable in lines of width columns.
func narrowed(cells [][]string, width int) [][]string {
	for _, heading := range []string{"KIND", "HELD", "TTL", "SERVER"} {
		needed := -2 // the gap after the last column
		for i := range cells[0] {
			widest := 0
			for _, row := range cells {
				widest = max(widest, output.Columns(row[i]))
			}
			needed += min(widest, readableWidth) + 2
		}
		if needed <= width {
			break
		}
		if i := slices.Index(cells[0], heading); i >= 0 {
			for n, row := range cells {
				cells[n] = slices.Delete(row, i, i+1)
			}
		}
	}
	return cells
}

// table lays out cells in columns, two spaces apart, and cuts the widest columns until a
// line fits into width.
func table(cells [][]string, width int) []string {
	const gap = 2
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], output.Columns(cell))
		}
	}
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	for ; sum > width; sum-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= 1 {
			break
		}
		widths[widest]--
	}
	for _, row := range cells {
		for i, cell := range row {
			row[i] = cut(cell, widths[i])
		}
	}
	return output.Table(cells).Lines()
}

// others is the end of a cell that counts further holders.
var others = regexp.MustCompile(` \+[0-9,]+$`)

// cut shortens text to width columns. An ellipsis replaces what is cut off, before a number of
// further holders if that fits.
func cut(text string, width int) string {
	if output.Columns(text) <= width {
		return text
	}
	if end := others.FindString(text); end != "" && output.Columns(end)+1 < width {
		return cut(strings.TrimSuffix(text, end), width-output.Columns(end)) + end
	}
	var b strings.Builder
	used := 1 // of the ellipsis
	for _, r := range text {
		if used += output.ColumnsOf(r); used > width {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}
