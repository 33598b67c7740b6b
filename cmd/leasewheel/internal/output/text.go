package output

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Quoted returns text, in quotes if it contains a character that a terminal would not
// show as it is: other clients chose it. Text that begins with a quote, or whose blanks would be
// read as those between two cells, is quoted as well.
func Quoted(text string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	blanks := strings.Contains(text, "  ") || strings.Trim(text, " ") != text
	if text == "" || blanks || text[0] == '"' || !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
		return strconv.Quote(text)
	}
	return text
}

// Client names an owner: its process and label, if known, or its id at the server.
func Client(c driver.Client, owner string) string {
	if c.Host == "" {
		return Quoted(owner)
	}
	name := fmt.Sprintf("%s[%d]@%s", Quoted(c.Process), c.PID, Quoted(c.Host))
	if c.Label != "" {
		name += " " + strconv.Quote(c.Label)
	}
	return name
}

// Instant returns nil for an unknown instant.
func Instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Visible replaces characters that a terminal might act upon: servers chose parts of the
// text.
func Visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// passwords finds the credentials in the URLs of servers: all up to the last "@" of the line, since
// a password that was not percent-encoded may have blanks and quotes. Those of a pattern, as in
// etcd://[user:password@]host, are none.
var passwords = regexp.MustCompile(`(?i)((?:rediss?|valkeys?|unix|postgres(?:ql)?|etcds?)(?:-[a-z]+)?://)[^\[\s,…].*@|(password=)[^&\s]+`)

// escapeAdvice is advice for programs: a shell has no such function.
var escapeAdvice = regexp.MustCompile(`(?:;|, or) escape it with EscapeName`)

// OneLine returns the visible text of err in one line: joined errors have several, and may repeat
// one. An argument that it quotes may be the URL of a server, in a place where none is accepted.
func OneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	text := escapeAdvice.ReplaceAllString(strings.Join(lines, "; "), "")
	return Visible(passwords.ReplaceAllString(text, "${1}${2}…"))
}

// Filled breaks the lines of paragraphs anew, for lines of width columns. Lines that begin
// with a space are those of lists and stay.
func Filled(text string, width int) string {
	var b strings.Builder
	column := 0 // in the paragraph's line; 0 outside of a paragraph
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		if line[0] == '\n' || line[0] == ' ' || line[0] == '\t' {
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line)
			column = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			size := Columns(word)
			switch {
			case column == 0:
				column = size
			case column+1+size > width:
				b.WriteByte('\n')
				column = size
			default:
				b.WriteByte(' ')
				column += 1 + size
			}
			b.WriteString(word)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
