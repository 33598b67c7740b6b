package redisstore_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// steppedClock is a server's clock that can be set while it runs.
type steppedClock struct{ library, file string }

func newSteppedClock(t *testing.T) steppedClock {
	dir := t.TempDir()
	c := steppedClock{filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", c.library, "../locktest/chaos/testdata/clock.c").CombinedOutput()
	require.NoError(t, err, string(out))
	page := make([]byte, 4096)
	binary.NativeEndian.PutUint64(page[8:], math.Float64bits(0))
	binary.NativeEndian.PutUint64(page[16:], uint64(time.Now().UnixNano()))
	require.NoError(t, os.WriteFile(c.file, page, 0o600))
	return c
}

func (c steppedClock) step(t *testing.T, d time.Duration) {
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

// A reading of a clock that was set back since, or of another server's, lets no late
// request through.
func TestLateRequestAfterTheClockWasSetBackChangesNothing(t *testing.T) {
	t.Parallel()
	c := newSteppedClock(t)
	server := redistest.Start(t, redistest.Config{Env: c.env()})
	admin := server.Client(t)
	stall := newStalling("stalled", 6*time.Second)
	options := server.Options()
	options.Dialer = stall.dial
	client := redis.NewClient(options)
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	l, err := lock.New(store, lock.Config{})
	require.NoError(t, err)
	defer l.Close(context.Background())
	require.NoError(t, mustLock(t, l, "warm up").Unlock(t.Context()))
	c.step(t, -20*time.Second)
	require.InDelta(t, -20*time.Second, time.Until(admin.Time(t.Context()).Val()), float64(time.Second))
	require.NoError(t, mustLock(t, l, "warm up").Unlock(t.Context()))

	stall.armed.Store(true)
	for stall.armed.Load() { // until a request is written within its time
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = l.Mutex("stalled").Lock(ctx)
		cancel()
		require.Error(t, err)
	}
	<-stall.arrived
	time.Sleep(time.Second)
	assert.Zero(t, admin.Exists(t.Context(), "stalled").Val(), "held by nobody, for %v", admin.PTTL(t.Context(), "stalled").Val())
}
