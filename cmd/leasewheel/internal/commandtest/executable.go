//go:build unix

package commandtest

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// WriteExecutable writes a file that can be executed at once. No other test starts a process
// meanwhile: a child has the file open for writing until it executes its own program, and the
// kernel executes no such file (ETXTBSY).
func WriteExecutable(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // it is executed
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
}
