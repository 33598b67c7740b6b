//go:build unix

package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// PATH is searched as by a shell: the first file that can be executed is the command, also in the
// current folder, and one that cannot be is not a missing one.
func TestExecutableIsLookedUpInPath(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for file, mode := range map[string]os.FileMode{
		filepath.Join(first, "plain"): 0o600, filepath.Join(first, "both"): 0o600, filepath.Join(second, "both"): 0o700,
	} {
		require.NoError(t, os.WriteFile(file, nil, mode))
	}
	require.NoError(t, os.Mkdir(filepath.Join(first, "folder"), 0o700))
	t.Chdir(second)
	for _, path := range []string{first + ":" + second, "/nonexistent:" + first + ":", first + ":."} {
		t.Setenv("PATH", path)
		found, err := findExecutable("both")
		require.NoError(t, err, path)
		assert.FileExists(t, found)
		for name, code := range map[string]int{"plain": exit.CannotExec, "folder": exit.NotFound, "none": exit.NotFound} {
			_, err := findExecutable(name)
			refused, ok := errors.AsType[*exit.Error](err)
			require.True(t, ok, name)
			assert.Equal(t, code, refused.Code, "%v", err)
		}
	}
}
