package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steppedClock is a server's clock that can be set while it runs.
type steppedClock struct{ library, file string }

func newSteppedClock(t testing.TB) steppedClock {
	t.Helper()
	return newClock(t, time.Now(), 0)
}

// newFrozenClock returns a clock that stands still at an instant, until it is stepped. Its skew
// is the rate of the host's clock, backwards.
func newFrozenClock(t testing.TB, at time.Time) steppedClock {
	t.Helper()
	return newClock(t, at, -1)
}

func newClock(t testing.TB, since time.Time, skew float64) steppedClock {
	t.Helper()
	library, err := clockLibrary()
	require.NoError(t, err)
	c := steppedClock{library, filepath.Join(t.TempDir(), "clock")}
	page := make([]byte, 4096)
	binary.NativeEndian.PutUint64(page[8:], math.Float64bits(skew))
	binary.NativeEndian.PutUint64(page[16:], uint64(since.UnixNano()))
	require.NoError(t, os.WriteFile(c.file, page, 0o600))
	return c
}

// clockLibrary compiles the library, which the tests share.
var clockLibrary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "clock-")
	if err != nil {
		return "", err
	}
	lasting.Cleanup(func() { _ = os.RemoveAll(dir) })
	library := filepath.Join(dir, "clock.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, "../locktest/chaos/testdata/clock.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return library, nil
})

// stepped returns by how much the clock is set.
func (c steppedClock) stepped(t testing.TB) time.Duration {
	t.Helper()
	page, err := os.ReadFile(c.file)
	require.NoError(t, err)
	return time.Duration(binary.NativeEndian.Uint64(page))
}

func (c steppedClock) step(t testing.TB, d time.Duration) {
	f, err := os.OpenFile(c.file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(d)))
	_, err = f.WriteAt(b[:], 0)
	require.NoError(t, err)
}

func (c steppedClock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "CHAOS_CLOCK=" + c.file}
}
