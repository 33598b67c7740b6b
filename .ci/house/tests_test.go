package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCountsTestsByKind(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"bubble_test.go": "package p\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc TestA() { synctest.Wait(); time.Sleep(1); time.Sleep(2) }\n",
		"server_test.go": "//go:build unix\n\npackage p\n\nimport \"time\"\n\nfunc TestMain() {}\nfunc TestB() { time.Sleep(1) }\nfunc TestC() {}\n",
		"p_real_test.go": "//go:build real && unix\n\npackage p\n\nimport \"testing/synctest\"\n\nfunc TestD() { synctest.Wait() }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := printTests(&out, root); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := strings.Join(strings.Fields(lines[len(lines)-1]), " "); last != "all 4 1 2 1 3 2 1 0" {
		t.Errorf("%s\n%s", last, out.String())
	}
}
