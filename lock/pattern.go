package lock

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// pattern is a pattern of names. It is matched here and not by the store: some stores
// need time that is exponential in the number of stars.
type pattern struct {
	parts  []string // "*", and patterns of one character
	prefix string   // the beginning of every matching name
	exact  bool     // prefix is the only matching name
}

// patternPart finds the parts of a well-formed pattern.
var patternPart = regexp.MustCompile(`(?s)\\.|\[(\\.|[^]\\])*\]|.`)

func parsePattern(text string) (*pattern, error) {
	if len(text) > driver.MaxName {
		return nil, &NameError{Name: text, Pattern: true, Reason: fmt.Sprintf("too long; accepted are up to %d bytes", driver.MaxName)}
	}
	p := &pattern{prefix: text, exact: true}
	if i := strings.IndexAny(text, `*?[\`); i >= 0 {
		p.prefix, p.exact = text[:i], false
	}
	if _, err := path.Match(text, ""); err != nil {
		return nil, &NameError{Name: text, Pattern: true, Reason: `malformed; a "[" needs its "]", and a "\" at the end has no meaning`}
	}
	if !p.exact && (!utf8.ValidString(p.prefix) || strings.ContainsFunc(p.prefix, unicode.IsControl)) {
		return nil, &NameError{Name: text, Pattern: true, Reason: "begins as no name does: names are UTF-8 without control characters"}
	}
	p.parts = patternPart.FindAllString(text, -1)
	return p, nil
}

// matches takes the fewest characters for each star that let the parts up to the next one match.
func (p *pattern) matches(name string) bool {
	parts, stars := p.parts, false
	var behind []string // the parts behind the last star
	var rest, from []string
	for rest = strings.Split(name, ""); len(rest) > 0; {
		switch {
		case len(parts) > 0 && parts[0] == "*":
			parts, stars = parts[1:], true
			behind, from = parts, rest
		case len(parts) > 0 && matchesOne(parts[0], rest[0]):
			parts, rest = parts[1:], rest[1:]
		case stars:
			from = from[1:]
			parts, rest = behind, from
		default:
			return false
		}
	}
	return strings.Trim(strings.Join(parts, ""), "*") == ""
}

// matchesOne matches a part with a character. To package path, "?" is no slash.
func matchesOne(part, character string) bool {
	matches, _ := path.Match(part, character)
	return matches || part == "?"
}
