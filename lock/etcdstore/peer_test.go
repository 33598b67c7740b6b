package etcdstore

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// A waiter does not rely on a watch that has hung for long.
func TestHungWatchIsNotReliedOn(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s := beside(t, holder)
	var passed atomic.Int64
	passed.Store(1) // no time but the test's passes
	s.clock, s.waitTTL = func() time.Duration { return time.Duration(passed.Load()) }, time.Hour
	acquire(t, holder, request("h:1", time.Hour))
	h := request("me:1", time.Hour)
	h.Queue.Subscribed = true
	sub := subscribe(t, s, h, func(driver.Notice) {})
	defer sub.Close()
	a := asks(t, s, h)
	require.Equal(t, driver.Refused, a.Verdict)
	id := leaseOf(t, holder, "a", "h:1")
	eventually(t, "the holder's lease is watched", func() bool { return s.watched(id) })
	s.mu.Lock()
	s.peers[id].stop() // its end is not noticed
	s.mu.Unlock()
	revoke(t, holder, id)
	passed.Add(int64(waitTTL))
	assert.False(t, s.watched(id))
	acquire(t, s, h)
}

// The end of a lease that has no part in a record any more wakes no waiter: of many processes for one lock, each
// would send a request, and write the record, at the end of a dozen others.
func TestFormerPeerWakesNoWaiter(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s := beside(t, holder)
	holder.waitTTL, s.waitTTL = time.Hour, time.Hour
	acquire(t, holder, request("h:1", time.Hour))
	read := &driver.Hold{Kind: driver.KindRead, Name: "b", Owner: "me:1", Count: 1, TTL: time.Hour}
	var notices atomic.Int64
	for _, h := range []*driver.Hold{request("me:1", time.Hour), read} {
		sub := subscribe(t, s, h, func(driver.Notice) { notices.Add(1) })
		defer sub.Close()
	}
	s.mu.Lock()
	for _, w := range s.watches {
		w.stop() // no other notice comes
	}
	s.waits[2] = true
	s.mu.Unlock()
	ended := func(id clientv3.LeaseID, name string) int64 {
		before := notices.Load()
		s.leaseEnded(t.Context(), id, []string{name})
		return notices.Load() - before
	}
	for begin := time.Now(); ended(1, "a") != 0; begin = time.Now() {
		require.GreaterOrEqual(t, time.Since(begin), tidyTimeout, "broken promise: a former peer has woken a waiter, though the member did not hang")
	}
	assert.NotZero(t, ended(2, "a"), "the store has waited by it: its places have ended")
	assert.NotZero(t, ended(leaseOf(t, holder, "a", "h:1"), "a"), "the holder's")
	assert.NotZero(t, ended(1, "b"), "the record has ended with the lease")
}

// A waiter without a part in the record is woken by the holder's end, though the record ended with it and another
// store has begun one anew: as a reader for which the lock is free.
func TestRecordBegunAnewWakesWaiter(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s, other := beside(t, holder), beside(t, holder)
	s.waitTTL = time.Hour
	read := func(owner string) *driver.Hold {
		return &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: owner, Count: 1, TTL: time.Hour}
	}
	acquire(t, holder, &driver.Hold{Kind: driver.KindWrite, Name: "a", Owner: "h:1", Count: 1, TTL: time.Hour})
	var notices atomic.Int64
	sub := subscribe(t, s, read("me:1"), func(driver.Notice) { notices.Add(1) })
	defer sub.Close()
	require.Equal(t, driver.Refused, asks(t, s, read("me:1")).Verdict)
	id := leaseOf(t, holder, "a", "h:1")
	s.mu.Lock()
	require.Contains(t, s.peers, id)
	s.peers[id].stop() // its end is noticed below
	s.mu.Unlock()
	revoke(t, holder, id)
	acquire(t, other, read("other:1"))
	require.Zero(t, notices.Load())
	s.peerEnded(id)
	assert.NotZero(t, notices.Load(), "broken promise: it waits for a lock that is free for it")
	acquire(t, s, read("me:1"))
}

// Nothing is left of the watch of a lease that has ended: while a lock is contended, one ends every few seconds.
func TestWatchOfAnEndedLeaseIsStopped(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s := beside(t, holder)
	s.waitTTL = time.Hour
	acquire(t, holder, request("h:1", time.Hour))
	notices := make(chan driver.Notice, 1000)
	sub := subscribe(t, s, request("me:1", time.Hour), func(n driver.Notice) { notices <- n })
	defer sub.Close()
	id := leaseOf(t, holder, "a", "h:1")
	var stopped atomic.Bool
	s.mu.Lock()
	p := s.peers[id]
	require.NotNil(t, p, "the lease is watched")
	stop := p.stop
	p.stop = func() {
		stop()
		stopped.Store(true)
	}
	s.mu.Unlock()
	revoke(t, holder, id)
	eventually(t, "the waiter is notified", func() bool { return len(notices) > 0 })
	assert.True(t, stopped.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.NotContains(t, s.peers, id)
}

// A waiter whose store loses the etcd lease by which it waits, as another client revokes it, has no place in the
// queue any more: it is woken, and has another one by its next request.
func TestWaiterWithoutItsLease(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s := beside(t, holder)
	h := request("00000001-0000-4000-8000-000000000000:1", time.Hour)
	acquire(t, holder, h)
	waiter := request("00000002-0000-4000-8000-000000000000:1", time.Hour)
	waiter.Queue.Subscribed = true
	notices := make(chan driver.Notice, 1000)
	sub := subscribe(t, s, waiter, func(n driver.Notice) { notices <- n })
	defer sub.Close()
	require.Equal(t, driver.Refused, asks(t, s, waiter).Verdict)
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	revoke(t, holder, waiting)
	eventually(t, "the waiter is woken", func() bool { return len(notices) > 0 })
	require.Equal(t, driver.Refused, asks(t, s, waiter).Verdict)
	h.Count = 0
	release(t, holder, h)
	eventually(t, "the release has granted the lock to the waiter", func() bool {
		info := answered(t, func() (driver.Info, error) { return holder.Inspect(t.Context(), "a", driver.KindMutex) })
		return len(info.Holders) == 1 && info.Holders[0].Owner == waiter.Owner
	})
	acquire(t, s, waiter)
}

// Nothing is left of the last subscription to a topic.
func TestWatchesEndWithTheLastSubscription(t *testing.T) {
	t.Parallel()
	s := open(t)
	watches := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.watches)
	}
	first := subscribe(t, s, request("me:1", time.Hour), func(driver.Notice) {})
	second := subscribe(t, s, request("me:1", time.Hour), func(driver.Notice) {})
	all := watches()
	first.Close()
	assert.Equal(t, all, watches())
	second.Close()
	assert.Zero(t, watches())
}

// A store that waits for a lock which many others have in turn watches the leases of some of them.
func TestFormerPeersAreForgotten(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := &driver.Hold{Kind: driver.KindWrite, Name: "a", Owner: "me:1", Count: 1, TTL: time.Hour}
	sub := subscribe(t, s, h, func(driver.Notice) {})
	watched := func() []clientv3.LeaseID {
		s.mu.Lock()
		defer s.mu.Unlock()
		return sortedKeys(s.peers)
	}
	for range 3 * maxPeers {
		granted, err := s.grant(t.Context(), time.Hour)
		require.NoError(t, err)
		put, err := s.put(t.Context(), s.keys.lease(granted.ID), "", granted.ID)
		require.NoError(t, err)
		r := record{waits: []wait{{machine.Topics(h)[0], granted.ID}}}
		s.watchPeers(&work{s: s, name: "a", record: r, version: version{revision: put.Header.Revision}})
		require.Contains(t, watched(), granted.ID)
		require.LessOrEqual(t, len(watched()), 2*maxPeers)
	}
	sub.Close()
	require.Empty(t, watched())
}
