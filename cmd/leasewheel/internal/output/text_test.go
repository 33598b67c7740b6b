package output

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Errors that were joined are one line, and each is in it once.
func TestOneLine(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("first\n\tsec\x1b[31mond\r\nfirst\n\n: %w", os.ErrClosed)
	assert.Equal(t, `first; sec\u001b[31mond; : file already closed`, OneLine(err))
}

// What a name lacks is explained to a person at a shell, who has no function EscapeName.
func TestOneLineAdvisesNoFunction(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a{b":             `lock: name "a{b": a lone brace; accepted is a hash tag like "{user:7}:cart"`,
		"{a}":             `lock: name "{a}": in braces as a whole: its keys are those of the name within, so the two would share a wait queue; use "a"`,
		"a\n":             `lock: name "a\n": holds a control character`,
		"\xff":            `lock: name "\xff": not UTF-8`,
		"redisson_x:{a}b": `lock: name "redisson_x:{a}b": a key of another lock: names with a hash tag must not begin with "redisson_", "leasewheel_" or "leasewheel:", end in ":timeout", or hold ":rwlock_timeout"`,
	} {
		assert.Equal(t, want, OneLine(driver.ValidateName(name)))
	}
}

// A line has no password of a URL, also of one that is none: with a blank, or a quote, in it.
func TestOneLineHasNoPassword(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"open redis://shop:s@ecret@cache:6379/1: no file":           "open redis://…cache:6379/1: no file",
		"got [\"rediss-cluster://:s\\\"ecret@a\" \"b@c\"]":          "got [\"rediss-cluster://…c\"]",
		"unknown command \"redis://:my s@ cret@cache:6379\" (see":   "unknown command \"redis://…cache:6379\" (see",
		"open redis://:my secret@cache: no file":                    "open redis://…cache: no file",
		"postgresql:///db?host=h&password=secret&sslmode=disable x": "postgresql:///db?host=h&password=…&sslmode=disable x",
		"accepted is etcd://[user[:password]@]host[:port]":          "accepted is etcd://[user[:password]@]host[:port]",
		"use redis:// instead of rediss://, or mail me@here":        "use redis:// instead of rediss://, or mail me@here",
		"redis://cache:6379 and http://me@here":                     "redis://…here",
	} {
		assert.Equal(t, want, OneLine(errors.New(text)))
	}
}

func TestFiguresKeepThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 7: 7, 999: 999, 1234: 1230, 1235999: 1240000, 99999: 100000, -5: -5,
	} {
		assert.Equal(t, want, Round(d))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		assert.Equal(t, want, Grouped(n))
	}
}

// Paragraphs are broken anew between words, and lists stay.
func TestFilled(t *testing.T) {
	t.Parallel()
	const text = "one two\nthree four\n\nfive\n  6   a list, that is long\nseven\n"
	assert.Equal(t, "one two\nthree\nfour\n\nfive\n  6   a list, that is long\nseven", Filled(text, 8))
	assert.Equal(t, "one two three four\n\nfive\n  6   a list, that is long\nseven", Filled(text, 80))
}

// A text that a terminal might act upon, or that would be read as several cells, is in quotes.
func TestQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orders:42": "orders:42", "a b": "a b", "日本": "日本", "": `""`, " ": `" "`, " a": `" a"`, "a ": `"a "`, "a  b": `"a  b"`,
		`"a"`: `"\"a\""`, `a"`: `a"`, "a\x1b[31m": `"a\x1b[31m"`, "\xff": `"\xff"`, "\u202eabc": `"\u202eabc"`,
	} {
		assert.Equal(t, want, Quoted(text))
	}
}
