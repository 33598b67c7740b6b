package redisstore_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// blockFile makes it impossible, for root too, to write a file: a directory that
// is not empty is in its place.
func blockFile(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path+"/occupied", 0o700))
}
