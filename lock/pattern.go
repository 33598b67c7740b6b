package lock

import (
	"fmt"
	"path"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// pattern is a pattern of names. It is matched here and not by the store: some stores
// need time that is exponential in the number of stars.
type pattern struct {
	text   string // with slashes replaced
	prefix string // the beginning of every matching name
	exact  bool   // prefix is the only matching name
}

func parsePattern(text string) (*pattern, error) {
	p := &pattern{text: unslash(text), prefix: text, exact: true}
	if i := strings.IndexAny(text, `*?[\`); i >= 0 {
		p.prefix, p.exact = text[:i], false
	}
	if len(text) > driver.MaxName {
		return nil, &NameError{Name: text, Pattern: true, Reason: fmt.Sprintf("too long; accepted are up to %d bytes", driver.MaxName)}
	}
	if _, err := path.Match(p.text, ""); err != nil {
		return nil, &NameError{Name: text, Pattern: true, Reason: `malformed; a "[" needs its "]", and a "\" at the end has no meaning`}
	}
	return p, nil
}

func (p *pattern) matches(name string) bool {
	matches, _ := path.Match(p.text, unslash(name))
	return matches
}

// unslash makes package path treat a slash like any other character. Its replacement is
// not a valid character.
func unslash(text string) string { return strings.ReplaceAll(text, "/", "\uffff") }
