package output

import (
	"io"
	"strings"
	"unicode"
)

// layOut returns the lines of rows, whose columns are two spaces apart. All but the first are
// aligned to the right if right is set.
func layOut(rows [][]string, right bool) (lines []string) {
	width := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], Columns(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			blanks := strings.Repeat(" ", width[i]-Columns(cell))
			if right && i > 0 {
				line.WriteString(blanks + cell + "  ")
			} else {
				line.WriteString(cell + blanks + "  ")
			}
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// WriteRows prints the first cell of each row to the left and all others to the
// right of their columns.
func WriteRows(b *strings.Builder, rows [][]string) {
	b.WriteString("  " + strings.Join(layOut(rows, true), "\n  ") + "\n")
}

// Table is a table whose cells are to the left of their columns.
type Table [][]string

// Add adds a row.
func (t *Table) Add(cells ...string) { *t = append(*t, cells) }

// Lines returns the lines of the rows.
func (t Table) Lines() []string { return layOut(t, false) }

// Write prints the rows, if there are any.
func (t Table) Write(w io.Writer) error {
	if len(t) == 0 {
		return nil
	}
	_, err := io.WriteString(w, strings.Join(t.Lines(), "\n")+"\n")
	return err
}

// wide are the characters of two columns: East Asian ones, and pictures.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x23e9, 0x23f3, 1}, {0x2600, 0x27bf, 1}, {0x2b00, 0x2bff, 1}, {0x2e80, 0xa4cf, 1},
		{0xa960, 0xa97c, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff01, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x16fe0, 0x1b2ff, 1}, {0x1f000, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// ColumnsOf returns how many columns a character takes at most.
func ColumnsOf(r rune) int {
	switch {
	case unicode.Is(wide, r):
		return 2
	case unicode.In(r, unicode.Mn, unicode.Me): // an accent, upon the character before
		return 0
	}
	return 1
}

// Columns is ColumnsOf for a text.
func Columns(text string) (n int) {
	for _, r := range text {
		n += ColumnsOf(r)
	}
	return n
}
