package lock

import (
	"fmt"
	"path"
	"strings"
)

// PatternError says what is wrong with a pattern of names.
type PatternError struct {
	Pattern string
	Reason  string
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("lock: pattern %s: %s", abbreviate(e.Pattern), e.Reason)
}

// pattern is a pattern of names. It is matched here and not by the store: some
// stores need time that grows exponentially with the number of stars.
type pattern struct {
	text   string // with slashes replaced
	prefix string // what every name that matches begins with
	exact  bool   // prefix is the only name that matches
}

func parsePattern(text string) (*pattern, error) {
	p := &pattern{text: unslash(text), prefix: literal(text)}
	p.exact = p.prefix == text
	if len(text) > MaxName {
		return nil, &PatternError{Pattern: text, Reason: fmt.Sprintf("too long; accepted are up to %d bytes", MaxName)}
	}
	if _, err := path.Match(p.text, ""); err != nil {
		return nil, &PatternError{Pattern: text, Reason: `malformed; a "[" needs its "]", and a "\" at the end has no meaning`}
	}
	return p, nil
}

func (p *pattern) matches(name string) bool {
	matches, _ := path.Match(p.text, unslash(name))
	return matches
}

// literal returns the text before the first character with a meaning.
func literal(text string) string {
	if i := strings.IndexAny(text, `*?[\`); i >= 0 {
		return text[:i]
	}
	return text
}

// unslash makes a slash a character like any other to package path. No character
// has the number that replaces it.
func unslash(text string) string { return strings.ReplaceAll(text, "/", "\uffff") }
