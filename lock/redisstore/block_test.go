package redisstore_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// blockFile makes a file impossible to write, even for root: it puts a directory that is
// not empty in its place.
func blockFile(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path+"/occupied", 0o700))
}
