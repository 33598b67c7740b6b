package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// output is what go tool test2json prints of two packages: a test of the first fails because a part
// of it does, and the second fails after its tests.
const output = `{"Action":"output","Package":"a","Output":"-test.shuffle 42\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestBad/part","Output":"expected 1, got 2\n"}
{"Action":"fail","Package":"a","Test":"TestBad/part"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
{"Action":"output","Package":"b","Output":"a goroutine was left\n"}
{"Action":"fail","Package":"b"}
`

func TestReadsFailures(t *testing.T) {
	reds, count, err := read(strings.NewReader(output))
	if err != nil || count != 3 || len(reds) != 2 {
		t.Fatalf("%d red of %d: %v", len(reds), count, err)
	}
	if r := reds[0]; r.pkg != "a" || r.test != "TestBad/part" || r.seed != "42" || r.output != "expected 1, got 2\n" {
		t.Errorf("%+v", r)
	}
	if r := reds[1]; r.pkg != "b" || r.test != "" || r.output != "a goroutine was left\n" {
		t.Errorf("%+v", r)
	}
}

func TestReportsFailuresOnce(t *testing.T) {
	var reds []*red
	for run := 1; run <= 3; run++ {
		if run < 3 {
			reds = merge(reds, &red{pkg: "a", test: "TestRare", runs: []int{run}})
		}
		reds = merge(reds, &red{pkg: "a", test: "TestOften", runs: []int{run}, output: "the last\n"})
	}
	var out bytes.Buffer
	f := &flakesRun{times: 3, out: &out}
	f.report(reds)
	often, rare := strings.Index(out.String(), "3    a        TestOften  1 2 3"), strings.Index(out.String(), "2    a        TestRare   1 2")
	if often < 0 || rare < often || strings.Count(out.String(), "the last") != 1 {
		t.Error(out.String())
	}
	out.Reset()
	f.report(nil)
	if !strings.Contains(out.String(), "no test was red in 3 runs") {
		t.Error(out.String())
	}
}

func TestFlakesRun(t *testing.T) {
	run := func() (string, error) {
		var out bytes.Buffer
		f := &flakesRun{times: 2, out: &out}
		err := f.play(t.Context(), []string{"./testdata/sample"})
		return out.String(), err
	}
	out, err := run()
	if err != nil || !strings.Contains(out, "run 2 of 2: 2 tests, 0 red") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv("SAMPLE", "red")
	out, err = run()
	if !errors.Is(err, errFailed) || !strings.Contains(out, "TestRed  1 2") || strings.Count(out, "as it always does") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
