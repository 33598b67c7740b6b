//go:build real

package interop

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aheadRedisson starts a JVM whose clock is ahead by the given seconds.
func aheadRedisson(t *testing.T, version string, seconds int) *driver {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("interop: only Linux can have a process see another clock")
	}
	dir := need(t, prepare("skew", []string{"skew/skew.c"}, []string{"cc"}, func(dir string) error {
		return command("skew", "cc", "-shared", "-fPIC", "-O1", "-o", filepath.Join(dir, "skew.so"), "skew.c", "-ldl")
	}))
	d := ownRedisson(t, version, "LD_PRELOAD="+filepath.Join(dir, "skew.so"), fmt.Sprint("SKEW_SECONDS=", seconds))
	r := await(t, d.request("clock", "clock"))
	require.NoError(t, r.err)
	ms, err := strconv.ParseInt(r.text, 10, 64)
	require.NoError(t, err)
	require.InDelta(t, seconds, time.Until(time.UnixMilli(ms)).Seconds(), 3, "the clock of the JVM")
	return d
}

// TestClockAheadLeavesOurPermit requests the only permit from a JVM whose clock is ahead of
// the server's, by less than our permit's remaining time and than docs/interop.md allows.
func TestClockAheadLeavesOurPermit(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, aheadRedisson(t, version, 8), s.address), open(t, golang(t), s.address)
		record(t, "8 permits: a JVM 8 s ahead", java.name, "permits", ours, nil)
		name := fresh("ahead")
		require.Equal(t, "1", wheel.do("a", "permits.set", name, 1))
		require.NotEqual(t, "0", wheel.do("a", "permits.acquire", name, never, 30_000))
		assert.Equal(t, "0", java.do("b", "permits.acquire", name, never, 30_000), "a permit of ours")
	})
}

// TestClockAheadKeepsTheQueue requests a fair lock from a JVM whose clock is ahead by 8 s,
// while a waiter of ours is the first in the queue.
func TestClockAheadKeepsTheQueue(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, aheadRedisson(t, version, 8), s.address), open(t, golang(t), s.address)
		record(t, "3 fair: a JVM 8 s ahead", java.name, "fair", both, nil)
		// A JVM that has locked before is in the queue before the holder's lease ends.
		require.NotEqual(t, "0", java.do("warm up", "lock", "fair", fresh("warm up"), never, 10))
		for i := 0; i < 5; {
			name := fresh("ahead")
			// The holder's remaining lease adds to a place's timeout: here little.
			require.NotEqual(t, "0", wheel.do("holder", "lock", "fair", name, never, 3000))
			first := wheel.begin("first", "lock", "fair", name, forever, renewed)
			s.queuedOr(t, name, 1, first)
			second := java.begin("second", "lock", "fair", name, forever, renewed)
			s.queuedOr(t, name, 2, first)
			inTime := len(first) == 0 // otherwise the lease was over before both waited: once more
			require.NoError(t, await(t, first).err)
			select {
			case <-second:
				t.Fatalf("round %d: Java has overtaken a waiter of ours", i)
			default:
			}
			if inTime {
				i++
			}
			wheel.do("first", "unlock", "fair", name)
			require.NoError(t, await(t, second).err)
			java.do("second", "unlock", "fair", name)
		}
	})
}

// TestSeveralPermitsAtOnce acquires several permits by one request, and sets their number, on
// either side.
func TestSeveralPermitsAtOnce(t *testing.T) {
	several := func(version string) bool { return atLeast(version, "3.22.0") }
	eachThat(t, several, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, d := range directions(java, wheel) {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				record(t, "8 permits: several at once, a number that is set", java.name, "permits", d.name, nil)
				h, w := d.holder.of(t), d.waiter.of(t)
				name := fresh("several")
				require.Equal(t, "1", h.do("a", "permits.set", name, 5))
				ids := h.do("a", "permits.acquiremany", name, 3, never, 30_000)
				require.NotEmpty(t, ids)
				assert.Equal(t, "2", w.do("b", "permits.available", name))
				assert.Empty(t, w.do("b", "permits.acquiremany", name, 3, never, 30_000), "more than are left")
				two := w.do("b", "permits.acquiremany", name, 2, never, 30_000)
				require.NotEmpty(t, two)
				w.do("b", "permits.releasemany", name, two)
				h.do("a", "permits.releasemany", name, ids)
				assert.Equal(t, "5", w.do("b", "permits.available", name))
				ids = w.do("b", "permits.acquiremany", name, 1, never, 30_000)
				h.do("a", "permits.reset", name, 9)
				assert.Equal(t, "8", w.do("b", "permits.available", name), "nine, of which one is in use")
				h.do("a", "permits.reset", name, 2)
				assert.Equal(t, "1", w.do("b", "permits.available", name), "two, of which one is in use")
				w.do("b", "permits.releasemany", name, ids)
				assert.Equal(t, "2", h.do("a", "permits.available", name))
			})
		}
	})
}
