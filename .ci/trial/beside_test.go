package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each of the commands in a and b waits for the other, and the one in c fails.
func TestBesideRun(t *testing.T) {
	folder := t.TempDir()
	var folders []string
	for _, name := range []string{"a", "b", "c"} {
		folders = append(folders, filepath.Join(folder, name))
		if err := os.Mkdir(folders[len(folders)-1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const script = `case $PWD in
*/a) mkfifo ../ab; echo first; read word <../ab; echo $word ;;
*/b) until [ -p ../ab ]; do sleep 0.01; done; echo last >../ab; echo second ;;
*) echo third; exit 3 ;;
esac`
	var out bytes.Buffer
	b, err := newBeside(2, append(folders, "--", "sh", "-c", script), &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.play(t.Context()); !errors.Is(err, errFailed) {
		t.Errorf("%v, though one has failed", err)
	}
	for _, part := range []string{"s)\nfirst\nlast\n", "s)\nsecond\n", "s)\nthird\n", "c: exit status 3\n", "failed: " + folders[2] + "\n"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in:\n%s", part, out.String())
		}
	}
	b.folders, b.command = folders[:2], []string{"true"}
	if err := b.play(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBesideNeedsACommand(t *testing.T) {
	for _, args := range [][]string{nil, {"a"}, {"a", "--"}, {"--", "true"}} {
		if _, err := newBeside(3, args, nil); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}
