package lock

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		pattern, prefix string
		exact           bool
		matches, misses string // names, separated by spaces
	}{
		{"*", "", false, "a jobs/1 {t}:a", ""},
		{"", "", true, "", "a"},
		{"jobs/1", "jobs/1", true, "jobs/1", "jobs/12 jobs jobs\uffff1x"},
		{"jobs/*", "jobs/", false, "jobs/1 jobs/a/b", "jobs job"},
		{"*/x", "", false, "a/x a/b/x /x", "x a/y"},
		{"a?c", "a", false, "abc a/c aäc", "ac abbc"},
		{"a[b-d]", "a", false, "ab ac ad", "ae a a-"},
		{"a[^b-d]", "a", false, "ae a-", "ab a"},
		{"a[.-0]b", "a", false, "a/b a.b a0b", "a1b a-b"},
		{"[/-9]*", "", false, "5 /a", "a"},
		{"[!-~]*", "", false, "/a a", "ä"},
		{"[^!-~]*", "", false, "ä", "/a a"},
		{"[\u0080-\U0010ffff]", "", false, "ä", "/ a"},
		{`a[\]/]*[x]`, "a", false, "a]x a/b/x", "abx a/b"},
		{"*[^ä]", "", false, "äx", "xä"},
		{`a\*b`, "a", false, "a*b", "aab ab"},
		{`a\/b`, "a", false, "a/b", "ab"},
		{"{t}:*", "{t}:", false, "{t}:a", "t:a"},
	} {
		p, err := parsePattern(test.pattern)
		require.NoError(t, err, test.pattern)
		assert.Equal(t, test.prefix, p.prefix, test.pattern)
		assert.Equal(t, test.exact, p.exact, test.pattern)
		for name := range strings.FieldsSeq(test.matches) {
			assert.True(t, p.matches(name), "%q matches %q", test.pattern, name)
			assert.True(t, strings.HasPrefix(name, p.prefix), "%q begins %q", p.prefix, name)
		}
		for name := range strings.FieldsSeq(test.misses) {
			assert.False(t, p.matches(name), "%q does not match %q", test.pattern, name)
		}
	}
	_, err := parsePattern(strings.Repeat("a", driver.MaxName))
	require.NoError(t, err)
	for _, malformed := range []string{"[", "a[b", "[]", "[b-", `a\`, "x[a", "\xff*", "a\x00?", strings.Repeat("a", driver.MaxName+1)} {
		_, err := parsePattern(malformed)
		var refused *NameError
		require.ErrorAs(t, err, &refused, malformed)
		assert.Equal(t, malformed, refused.Name)
		assert.True(t, refused.Pattern)
		assert.NotContains(t, err.Error(), "\n")
		assert.Less(t, len(err.Error()), 200)
	}
}

// Every matching name begins with the prefix, so a server that filters by it omits
// nothing.
func FuzzPattern(f *testing.F) {
	f.Add("a*", "ab")
	f.Add(`\[a/?`, "[a/b")
	f.Add("[^a]/*", "b/c")
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := parsePattern(text)
		if err != nil {
			return
		}
		if matches := p.matches(name); matches && !strings.HasPrefix(name, p.prefix) {
			t.Errorf("%q matches %q, which does not begin with %q", text, name, p.prefix)
		} else if p.exact && matches != (name == text) {
			t.Errorf("%q is a name, and matches %q: %v", text, name, matches)
		}
	})
}
