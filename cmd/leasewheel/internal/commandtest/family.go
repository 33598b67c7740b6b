//go:build unix

package commandtest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// PrivateFile returns a private file with the text.
func PrivateFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// FamilyLine is a line of shell that writes the process ids of its shell and of two
// processes that it starts to the file, and then does something.
func FamilyLine(file, then string) string {
	return "{ echo $$; sleep 1000 >/dev/null 2>&1 & echo $!; (trap '' TERM HUP INT; sleep 1000) >/dev/null 2>&1 & echo $!; } >" +
		file + ".new; mv " + file + ".new " + file + "; " + then
}

// FamilyPIDs waits for the file of a FamilyLine.
func FamilyPIDs(t *testing.T, file string) (pids []int) {
	t.Helper()
	Eventually(t, "written", func() bool { _, err := os.Stat(file); return err == nil })
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 3)
	return pids
}

// RequireAllGone waits until none of the processes is left, and kills them if that fails.
func RequireAllGone(t *testing.T, pids []int) {
	t.Helper()
	t.Cleanup(func() {
		for _, pid := range pids {
			if !Gone(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	})
	Eventually(t, "gone", func() bool { return !slices.ContainsFunc(pids, func(pid int) bool { return !Gone(pid) }) })
}
