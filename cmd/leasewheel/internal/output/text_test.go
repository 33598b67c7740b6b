package output

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Errors that were joined are one line.
func TestOneLine(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("first\n\tsec\x1b[31mond\r\n\n: %w", os.ErrClosed)
	assert.Equal(t, `first; sec\u001b[31mond; : file already closed`, OneLine(err))
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
