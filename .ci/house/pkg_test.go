package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes a repository of files.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// a uses b, and b uses c; c uses a name of a, which climbs.
var three = map[string]string{
	"p/c.go":      "package p\n\ntype C struct{ Field, hidden int }\n\nfunc (c *C) top() *A { return nil }\n",
	"p/b.go":      "package p\n\nimport \"absent\"\n\nfunc b(x absent.Type) C { return C{} }\n\nfunc (c C) Shown() {}\n",
	"p/a.go":      "package p\n\ntype A struct{}\n\nfunc a() { _ = b; b2() }\n",
	"p/b2.go":     "package p\n\nfunc b2() { _ = C{}.Field }\n",
	"p/a_test.go": "package p\n\nfunc test() { a() }\n",
	"p/s.lua":     "return 1\n",
	"README.md":   "three words here\n",
}

func TestFigures(t *testing.T) {
	p, err := load(write(t, three), "p")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.files) != 4 || p.lines != 20 || p.scripts != 1 || p.scriptLines != 1 {
		t.Errorf("files %v, lines %d, scripts %d of %d lines", p.files, p.lines, p.scripts, p.scriptLines)
	}
	if want := []string{"A", "C", "C.Shown", "C.Field"}; !slices.Equal(p.exported, want) {
		t.Errorf("exported %v, want %v", p.exported, want)
	}
	if c := p.largest(); c.name != "C" || c.methods != 2 || len(c.files) != 2 {
		t.Errorf("the largest type is %+v", c)
	}
	if len(p.references) != 5 {
		t.Errorf("references %v", p.references)
	}
	if climbing := p.climbing(); len(climbing) != 1 || climbing[0] != [2]string{"c.go", "a.go"} {
		t.Errorf("climbing %v in %v", climbing, p.order())
	}
}

func TestReport(t *testing.T) {
	root := write(t, three)
	var out bytes.Buffer
	if err := run(&out, root, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"README.md      3", "all      3", " p      4     20        1             1         4           5      1  20             2   C         2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing from:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := run(&out, root, []string{"p"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "c.go climbs to a.go: A") || !strings.Contains(out.String(), "C: 2 methods in 2 files") {
		t.Errorf("the details are:\n%s", &out)
	}
}
