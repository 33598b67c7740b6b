package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTraced(t *testing.T) {
	const code = "// Package p is one.\npackage p\n\nimport \"fmt\"\n\ntype T struct{}\n\nfunc (t *T) M() { fmt.Println() }\n\nfunc f()\n\nfunc g(h func()) int {\n\treturn 1\n}\n"
	got, err := traced("p/a.go", []byte(code))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"package p\n", `package p; import tracer__ "github.com/leasewheel/leasewheel/internal/tracer"`+"\n",
		"M() {", `M() { tracer__.Enter("p/a.go", "M");`,
		"int {", `int { tracer__.Enter("p/a.go", "g");`,
	).Replace(code)
	if string(got) != want {
		t.Errorf("got:\n%s", got)
	}
	const types = "package p\n\ntype T struct{}\n"
	if got, err := traced("p/t.go", []byte(types)); err != nil || string(got) != types {
		t.Errorf("a file without functions: %v\n%s", err, got)
	}
}

// b is left and entered again, once from q and once from c.
func TestRoads(t *testing.T) {
	roads := parseRoads([]byte("enter\tp/x.go\tbefore\nroad\tone\nenter\tp/a.go\tf\nenter\tp/b.go\tg\nenter\tp/b.go\th\nenter\tq/c.go\tf\nenter\tp/b.go\tg\nenter\tp/c.go\tg\nenter\tp/b.go\tg\nroad\ttwo\nenter\tq/c.go\tf\n"))
	if len(roads) != 2 || roads[0].name != "one" || roads[1].name != "two" {
		t.Fatalf("roads %v", roads)
	}
	for _, want := range []struct {
		folder                    string
		files, functions, returns int
	}{{"", 4, 5, 2}, {"p/", 3, 4, 1}, {"q/", 1, 1, 0}, {"r/", 0, 0, 0}} {
		if files, functions, returns := roads[0].measure(want.folder); files != want.files || functions != want.functions || returns != want.returns {
			t.Errorf("in %q: %d files, %d functions, %d returns; want %+v", want.folder, files, functions, returns, want)
		}
	}
	var out bytes.Buffer
	if err := report(&out, roads); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\none\n  p/a.go\n    f\n  p/b.go\n    g\n    h\n  q/c.go\n") {
		t.Errorf("the report is:\n%s", &out)
	}
}
