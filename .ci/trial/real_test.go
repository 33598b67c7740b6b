package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFindsRealTests(t *testing.T) {
	found, err := find("testdata", []string{"./sample"})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !slices.Equal(found[0].Tests, []string{"TestPasses", "TestFails", "TestSkips", "TestFailsOnce", "TestBreaksOnce"}) {
		t.Errorf("found %+v, not the five tests of the file with the tag", found)
	}
}

// sample runs the tests below the folders whose names match, so many at a time.
func sample(t *testing.T, only string, lanes int, skip bool, folders ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	r := &realRun{
		times: 1, lanes: lanes, retries: 1, least: time.Hour, limit: time.Minute, skip: skip,
		only: regexp.MustCompile(only), out: &out, folder: t.TempDir(),
	}
	err := r.play(t.Context(), folders, []string{"./..."})
	return out.String(), err
}

func TestRealRun(t *testing.T) {
	for _, c := range []struct {
		only, line string
		lanes      int
		skip       bool
		failed     bool
	}{
		{only: "Passes", lanes: 1, line: "1 passed, 0 of them after the machine had stalled, 0 failed"},
		{only: "Passes", lanes: 2, line: "1 passed, 0 of them after the machine had stalled, 0 failed"},
		{only: "Fails$", lanes: 1, line: "as it always does", failed: true},
		{only: "Fails$", lanes: 2, line: "as it always does", failed: true},
		{only: "Skips", lanes: 2, line: "a skipped test proves nothing", failed: true},
		{only: "Skips", lanes: 2, line: "1 passed", skip: true},
		{only: "FailsOnce", lanes: 1, line: "1 failed", failed: true},
		{only: "FailsOnce|Passes", lanes: 2, line: "2 passed"}, // the first failure was beside another test
		{only: "BreaksOnce", lanes: 2, line: "1 failed", failed: true},
	} {
		t.Setenv("SAMPLE_MARK", filepath.Join(t.TempDir(), "mark"))
		out, err := sample(t, c.only, c.lanes, c.skip, "testdata/sample")
		if errors.Is(err, errFailed) != c.failed || err != nil && !c.failed || !strings.Contains(out, c.line) {
			t.Errorf("%s (lanes %d, skip %v): %v\n%s", c.only, c.lanes, c.skip, err, out)
		}
	}
	// The sample is found in each of the folders, as the tests of a module are.
	if out, err := sample(t, "Passes", 2, false, "testdata", "testdata/sample"); err != nil || !strings.Contains(out, "2 passed") {
		t.Errorf("of two folders: %v\n%s", err, out)
	}
	if out, err := sample(t, "Absent", 1, false, "testdata"); err == nil || errors.Is(err, errFailed) {
		t.Errorf("a pattern without a test is no success: %v\n%s", err, out)
	}
}

func TestVerdict(t *testing.T) {
	var (
		pass      = outcome{passed: true}
		fail      = outcome{output: "it took too long"}
		inStall   = outcome{output: "it took too long", stalls: stalls{count: 1}}
		broken    = outcome{output: "broken promise: two holders", stalls: stalls{count: 1}}
		passStall = outcome{passed: true, stalls: stalls{count: 1}}
	)
	for _, c := range []struct {
		name string
		runs []outcome
		want verdict
		used int
	}{
		{"passes", []outcome{pass}, passed, 1},
		{"passes though the machine stalls", []outcome{passStall}, passed, 1},
		{"fails on a machine that does not stall", []outcome{fail, pass}, failed, 1},
		{"fails while the machine stalls", []outcome{inStall, pass}, stalled, 2},
		{"fails after a stall without one", []outcome{inStall, fail, pass}, failed, 2},
		{"fails in every stall", []outcome{inStall, inStall, inStall, inStall, pass}, failed, 4},
		{"breaks a promise while the machine stalls", []outcome{broken, pass}, failed, 1},
	} {
		next := 0
		got, outcomes := judge(func() outcome { next++; return c.runs[next-1] }, 3)
		if got != c.want || len(outcomes) != c.used {
			t.Errorf("a test that %s: %s after %d runs, not %s after %d", c.name, got, len(outcomes), c.want, c.used)
		}
	}
}

// Two packages of one name have a binary each.
func TestBuildsNamesakes(t *testing.T) {
	packages := []pkg{{ImportPath: "github.com/leasewheel/leasewheel/.ci/trial/testdata/sample"}}
	packages = append(packages, pkg{ImportPath: packages[0].ImportPath + "/sample"})
	binaries, err := build(t.Context(), ".", t.TempDir(), packages)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []string{"TestLogic", "TestNamesake"} {
		out, err := exec.CommandContext(t.Context(), binaries[packages[i].ImportPath], "-test.list", ".").Output()
		if err != nil || !strings.Contains(string(out), test+"\n") {
			t.Errorf("%s has %q: %v", packages[i].ImportPath, out, err)
		}
	}
}
