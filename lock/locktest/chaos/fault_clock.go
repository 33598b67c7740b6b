//go:build linux

package chaos

import (
	_ "embed"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed testdata/clock.c
var clockSource []byte

// clock is the wall clock of the servers, which a preloaded library derives from the
// host's: it is skewed as the plan requires, and can be stepped.
type clock struct {
	library, file string
	offset        *atomic.Int64 // ns; in memory that the servers share
}

// clockLibrary compiles the library into a folder. It is "" where there is no C compiler.
func clockLibrary(dir string) string {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if os.WriteFile(source, clockSource, 0o600) != nil ||
		exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).Run() != nil {
		return ""
	}
	return library
}

// newClock returns nil, and logs it, if there is no C compiler.
func newClock(t *testing.T, skew float64) *clock {
	t.Helper()
	dir := t.TempDir()
	library := clockLibrary(dir)
	if library == "" {
		t.Log("no C compiler: the servers' clocks are neither stepped nor skewed")
		return nil
	}
	c := &clock{library: library, file: filepath.Join(dir, "clock")}
	page := make([]byte, 4096)
	binary.NativeEndian.PutUint64(page[8:], math.Float64bits(skew))
	binary.NativeEndian.PutUint64(page[16:], uint64(time.Now().UnixNano()))
	if err := os.WriteFile(c.file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(c.file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	shared, err := unix.Mmap(int(f.Fd()), 0, len(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(shared) })
	c.offset = (*atomic.Int64)(unsafe.Pointer(&shared[0]))
	return c
}

func (c *clock) env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "CHAOS_CLOCK=" + c.file}
}

func (c *clock) step(d time.Duration) { c.offset.Add(int64(d)) }
