package exporter

import (
	"cmp"
	"strings"
	"sync"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// DefaultMaxLabels is how many different labels there may be by default.
const DefaultMaxLabels = 100

// Labels bounds the number of different labels of locks. It is safe for concurrent use.
type Labels struct {
	choose func(kind driver.Kind, name string) string
	most   int

	mu   sync.Mutex
	seen map[string]bool // guarded by mu
}

// NewLabels allows most labels, or DefaultMaxLabels for zero. choose returns the label of a
// lock, or "" for none.
func NewLabels(choose func(kind driver.Kind, name string) string, most int) *Labels {
	return &Labels{choose: choose, most: cmp.Or(most, DefaultMaxLabels), seen: make(map[string]bool)}
}

// Of returns the label of a lock: "" for none, and "other" for a new one if there are too
// many before it.
func (l *Labels) Of(kind driver.Kind, name string) string {
	label := Label(l.choose(kind, name)) // a part of a name may begin or end within a character
	if label == "" {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[label] {
		if len(l.seen) >= l.most {
			return "other"
		}
		l.seen[label] = true
	}
	return label
}

// Label returns a text as the value of a label. One that is not UTF-8 would cost all metrics of the
// process: a scrape fails as a whole, and so does an export by OTLP.
func Label(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// Word returns words as the value of a label.
func Word(s string) string { return strings.ReplaceAll(s, " ", "_") }
