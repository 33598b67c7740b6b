package etcdstore

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

func TestCombinedClock(t *testing.T) {
	t.Parallel()
	var monotonic, wall time.Duration
	now := combined(func() time.Duration { return monotonic }, func() time.Duration { return wall })
	begin := now()
	for _, step := range []struct {
		monotonic, wall, want time.Duration
		what                  string
	}{
		{time.Second, time.Second, time.Second, "both go"},
		{0, time.Minute, time.Minute, "the system sleeps"},
		{time.Second, -time.Hour, time.Second, "the wall clock is set back"},
		{0, time.Minute, time.Minute, "the system sleeps afterwards"},
	} {
		monotonic, wall = monotonic+step.monotonic, wall+step.wall
		assert.Equal(t, begin+step.want, now(), step.what)
		begin = now()
	}
}

// Leases age while the system sleeps: a new hold does not share one that etcd is about to end.
func TestLeasesAgeDuringSleep(t *testing.T) {
	t.Parallel()
	s := open(t)
	var slept atomic.Int64
	awake := s.clock
	s.clock = func() time.Duration { return awake() + time.Duration(slept.Load()) }
	const ttl = time.Minute
	acquire(t, s, request("me:1", ttl))
	old := leaseOf(t, s, "a", "me:1")
	h := request("me:2", ttl)
	h.Name = "b"
	slept.Add(int64(40 * time.Second))
	a := acquire(t, s, h)
	assert.NotEqual(t, old, leaseOf(t, s, "b", "me:2"))
	assert.Greater(t, a.First, ttl*3/4)

	items := []renewal.Item{{Key: "b", Owner: "me:2", Ref: driver.KindMutex, TTL: ttl}}
	s.Renew(t.Context(), items)
	require.Equal(t, renewal.Renewed, items[0].Outcome, "%v", items[0].Err)
	assert.LessOrEqual(t, items[0].Given, ttl)
	require.True(t, s.leases.alive(old))
	slept.Add(int64(30 * time.Second))
	assert.False(t, s.leases.alive(old))
}
