package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory returns the fields of the system's segments of shared memory.
func memory(t *testing.T) (segments []string) {
	text, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		segments = append(segments, strings.Join(strings.Fields(line)[:2], " "))
	}
	return segments
}

// A server that was killed leaves no memory, nor does one that is replaced by a copy.
func TestNothingIsLeftOfAKilledServer(t *testing.T) {
	t.Parallel()
	primary, s := Start(t), Start(t)
	segment := func() string {
		text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
		require.NoError(t, err)
		segment := strings.Join(strings.Fields(strings.Split(string(text), "\n")[6]), " ")
		require.Contains(t, memory(t), segment)
		return segment
	}
	first := segment()
	require.NoError(t, s.Follow(primary))
	second := segment()
	s.Kill()
	s.Close()
	assert.NotContains(t, memory(t), first)
	assert.NotContains(t, memory(t), second)

	var kind string
	pool := primary.Pool(t)
	require.NoError(t, pool.QueryRow(t.Context(), "SHOW dynamic_shared_memory_type").Scan(&kind))
	assert.Equal(t, "mmap", kind) // in the data
}
