package main

import (
	"regexp"
	"testing"
)

// Each platform has the mistake that go vet finds there, and no other.
func TestFindsWhatVetFinds(t *testing.T) {
	t.Chdir("testdata/sample")
	c := newChecker()
	for platform, found := range map[string]string{
		"linux/amd64":   "",
		"linux/386":     `overflows`,
		"windows/amd64": `undefined: missing`,
		"darwin/arm64":  `format_darwin_test.go:5:\d+: printf: .* wrong type string`,
		"freebsd/amd64": `undefined: tagged`,
	} {
		c.problems = nil
		c.checkAll(platform, "tagged", []string{"./..."})
		switch {
		case found == "" && len(c.problems) > 0:
			t.Errorf("%s is sound, but: %q", platform, c.problems)
		case found != "" && (len(c.problems) != 1 || !regexp.MustCompile(found).MatchString(c.problems[0])):
			t.Errorf("%s: found %q, not %q", platform, c.problems, found)
		}
	}
}
