package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidateName returns nil if name can name a lock, and otherwise a *[NameError]. A
// name has 1 to [MaxName] bytes of UTF-8 without control characters. Braces must form a
// hash tag for Redis Cluster: the first "{" is followed by a "}" with something
// between, as in "{user:7}:cart".
//
// Two accepted names never share a key or a channel. So a name entirely in braces is
// rejected, and a name with braces that is a key of another lock: it begins with
// "redisson_", "leasewheel_" or "leasewheel:", ends in ":timeout", or contains
// ":rwlock_timeout".
func ValidateName(name string) error {
	var reason string
	switch {
	case name == "":
		reason = fmt.Sprintf("empty; accepted are 1 to %d bytes", MaxName)
	case len(name) > MaxName:
		reason = fmt.Sprintf("too long; accepted are 1 to %d bytes", MaxName)
	case !utf8.ValidString(name):
		reason = "not UTF-8; escape it with EscapeName"
	case strings.ContainsFunc(name, unicode.IsControl):
		reason = "holds a control character; escape it with EscapeName"
	case !bracesFormTag(name):
		reason = `a lone brace; accepted is a hash tag like "{user:7}:cart", or escape it with EscapeName`
	case inBraces(name):
		reason = fmt.Sprintf("in braces as a whole: its keys are those of the name within, so the two would share a wait queue; use %s, or escape it with EscapeName",
			abbreviate(name[1:len(name)-1]))
	case derived(name):
		reason = `a key of another lock: names with a hash tag must not begin with "redisson_", "leasewheel_" or "leasewheel:", end in ":timeout", or hold ":rwlock_timeout"; escape it with EscapeName`
	default:
		return nil
	}
	return &NameError{Name: name, Reason: reason}
}

// inBraces reports whether name is "{x}" and x has the keys "prefix:{x}", which name has
// as well.
func inBraces(name string) bool {
	return strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") && bracesFormTag(name[1:len(name)-1])
}

// derived reports whether name may be a key or a channel of another lock. All of those
// have braces: "prefix:{x}", "{x}:suffix", or a tagged name between the two. A name that
// ends in the random id of a client, "{x}:<uuid>", does not count: people use such names.
func derived(name string) bool {
	if !strings.Contains(name, "{") {
		return false
	}
	for _, prefix := range []string{"redisson_", "leasewheel_", "leasewheel:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, ":timeout") || strings.Contains(name, ":rwlock_timeout")
}

// bracesFormTag reports whether a cluster hashes name and the keys derived from it
// ("prefix:{name}", or "prefix:name" if name contains a "{") to one slot.
func bracesFormTag(name string) bool {
	_, after, ok := strings.Cut(name, "{")
	if !ok {
		return !strings.Contains(name, "}")
	}
	return strings.IndexByte(after, '}') > 0
}

// EscapeName converts any text into a name that [ValidateName] accepts, unless it is
// empty or too long. Braces, "%", control characters and bytes that are not UTF-8
// become "%XX". Different texts become different names.
func EscapeName(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		bad := r == utf8.RuneError && size == 1
		if bad || r == '{' || r == '}' || r == '%' || unicode.IsControl(r) {
			for _, c := range []byte(text[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

// NameError describes why a lock's name, or a pattern of names, is rejected.
type NameError struct {
	Name, Reason string
	Pattern      bool // Name is a pattern
}

func (e *NameError) Error() string {
	what := "name"
	if e.Pattern {
		what = "pattern"
	}
	return fmt.Sprintf("lock: %s %s: %s", what, abbreviate(e.Name), e.Reason)
}

// abbreviate quotes a name and truncates a long one, so that an error stays on one line.
func abbreviate(name string) string {
	const most = 48
	if len(name) <= most {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
}
