package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/renewal"
)

// prefixes counts the prefixes of tests.
var prefixes atomic.Int64

// openOn returns a store with a prefix on a client, which ends with t.
func openOn(t testing.TB, client *clientv3.Client, prefix string) *Store {
	s, err := New(client, Config{Prefix: prefix})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// open returns a store on the shared cluster, with a prefix of its own.
func open(t testing.TB) *Store {
	c := common(t)
	return openOn(t, c.dial(t), fmt.Sprintf("test/%d", prefixes.Add(1)))
}

// beside returns another store of the same locks.
func beside(t testing.TB, s *Store) *Store {
	return openOn(t, common(t).dial(t), strings.TrimSuffix(s.keys.prefix, "//"))
}

// request returns a hold of a mutex called a.
func request(owner string, ttl time.Duration) *driver.Hold {
	return &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: owner, Count: 1, TTL: ttl}
}

// acquire acquires a hold.
func acquire(t testing.TB, s *Store, h *driver.Hold) driver.Answer {
	t.Helper()
	var a driver.Answer
	repeated(t, func() (err error) {
		a, err = s.Acquire(t.Context(), h)
		return err
	})
	require.Equal(t, driver.Granted, a.Verdict)
	return a
}

// repeated sends a request until it is answered, as package lock does: a member that stood still ends by
// itself what it was sent some seconds before.
func repeated(t testing.TB, send func() error) {
	t.Helper()
	var err error
	for begin := time.Now(); ; {
		if err = send(); !errors.Is(err, driver.ErrUnavailable) || time.Since(begin) > limit {
			break
		}
	}
	require.NoError(t, err)
}

// answered sends a request until it is answered, and returns the answer.
func answered[T any](t testing.TB, send func() (T, error)) (answer T) {
	t.Helper()
	repeated(t, func() (err error) {
		if answer, err = send(); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			err = failed(err)
		}
		return err
	})
	return answer
}

// asks requests a hold, and returns the answer.
func asks(t testing.TB, s *Store, h *driver.Hold) driver.Answer {
	t.Helper()
	return answered(t, func() (driver.Answer, error) { return s.Acquire(t.Context(), h) })
}

// release lowers the owner's holds, and returns whether it had some. It had none if an attempt without an answer
// has done it.
func release(t testing.TB, s *Store, h *driver.Hold) (held bool) {
	t.Helper()
	return answered(t, func() (bool, error) { return s.Release(t.Context(), h) })
}

// released lowers holds that the owner has.
func released(t testing.TB, s *Store, h *driver.Hold) {
	t.Helper()
	maybe := false
	held := answered(t, func() (bool, error) {
		held, err := s.Release(t.Context(), h)
		maybe = maybe || err != nil && !errors.Is(err, driver.ErrNotDone)
		return held, err
	})
	require.True(t, held || maybe)
}

// revoke ends an etcd lease.
func revoke(t testing.TB, s *Store, id clientv3.LeaseID) {
	t.Helper()
	repeated(t, func() error {
		_, err := s.client.Revoke(t.Context(), id)
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) { // an attempt without an answer has done it
			return nil
		}
		return failed(err)
	})
}

// subscribe subscribes for a waiter.
func subscribe(t testing.TB, s *Store, h *driver.Hold, notify func(driver.Notice)) driver.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return answered(t, func() (driver.Subscription, error) { return s.Subscribe(ctx, h, notify) })
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// attempt is one of inTime.
type attempt struct {
	t    *testing.T
	most time.Duration
	last time.Time     // of the check before, or the beginning
	took time.Duration // the longest between two checks
	late bool
}

// inTime attempts a test whose leases end by themselves, until the machine held up no attempt: what is
// checked must hold if no more time than most has passed between two checks until then.
func inTime(t *testing.T, most time.Duration, try func(a *attempt)) {
	t.Helper()
	for begin := time.Now(); ; {
		a := &attempt{t: t, most: most, last: time.Now()}
		if try(a); !a.late {
			return
		}
		require.Less(t, time.Since(begin), limit, "every attempt was held up")
	}
}

// holds checks a condition. It returns false if the machine may be why it does not hold.
func (a *attempt) holds(condition bool, what string) bool {
	a.t.Helper()
	a.took = max(a.took, time.Since(a.last)) // a lease that has ended may not have been checked at once
	if a.last = time.Now(); condition {
		return true
	}
	require.Greater(a.t, a.took, a.most, what)
	a.late = true
	return false
}

// An attempt that was held up does not judge what it checks later, either.
func TestAttemptThatWasHeldUp(t *testing.T) {
	t.Parallel()
	a := &attempt{t: t, most: time.Hour, last: time.Now().Add(-2 * time.Hour)}
	require.True(t, a.holds(true, "what had not ended yet"))
	require.False(t, a.holds(false, "what has ended since"))
	require.True(t, a.late)
}

// free reports whether a mutex called a is free.
func free(t testing.TB, s *Store) bool {
	t.Helper()
	var info driver.Info
	repeated(t, func() (err error) {
		info, err = s.Inspect(t.Context(), "a", driver.KindMutex)
		return err
	})
	return !info.Held()
}

// leaseOf returns the etcd lease by which an owner has a name.
func leaseOf(t testing.TB, s *Store, name, owner string) clientv3.LeaseID {
	t.Helper()
	v := answered(t, func() (version, error) { return s.read(t.Context(), name) })
	w, err := s.load(name, v, nil)
	require.NoError(t, err)
	return w.of[owner].lease
}

// A lease that is revoked behind the holder's back is reported as lost long before its renewal.
func TestRevokedLeaseIsLostAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	l, err := lock.New(s, lock.Config{TTL: time.Hour, RequestTimeout: limit})
	require.NoError(t, err)
	defer l.Close()
	var alarms atomic.Int64
	defer s.OnLoss(func() { alarms.Add(1) })()
	for _, m := range []*lock.Mutex{l.Mutex("mutex"), l.Fair("fair"), l.ReadWrite("rw").Read(), l.ReadWrite("rw").Write()} {
		lease, err := m.Lock(t.Context())
		require.NoError(t, err)
		id, before := leaseOf(t, s, lease.Name(), lease.Owner()), alarms.Load()
		revoke(t, s, id)
		eventually(t, "the store gives the alarm", func() bool { return alarms.Load() > before })
		eventually(t, "the loss is reported", func() bool {
			select {
			case <-lease.Lost():
				return true
			case <-time.After(time.Second):
				s.lost() // a member that stood still may not have answered: the next attempt would be minutes later
				return false
			}
		})
		var loss *lock.LostError
		require.ErrorAs(t, lease.Err(), &loss)
		assert.Equal(t, renewal.Deleted, loss.Cause)
		again, err := m.Lock(t.Context())
		require.NoError(t, err)
		assert.Greater(t, again.Token(), lease.Token())
		require.NoError(t, again.Unlock(t.Context()))
	}
}

// A hold ends by its own TTL though another hold on its etcd lease is renewed.
func TestHoldsOfOneLeaseEndApart(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	inTime(t, ttl/4, func(try *attempt) {
		s := open(t)
		left, kept := request("me:1", ttl), request("me:2", ttl)
		kept.Name = "b"
		acquire(t, s, left)
		acquire(t, s, kept)
		shared := leaseOf(t, s, "a", "me:1")
		if !try.holds(shared == leaseOf(t, s, "b", "me:2"), "both are on one etcd lease") {
			return
		}
		eventually(t, "the hold that is not renewed ends", func() bool {
			renewed := []renewal.Item{{Key: "b", Owner: "me:2", Ref: driver.KindMutex, TTL: ttl}}
			s.Renew(t.Context(), renewed)
			if errors.Is(renewed[0].Err, driver.ErrUnavailable) {
				return false
			}
			return !try.holds(renewed[0].Outcome == renewal.Renewed, "the other one is renewed") || free(t, s)
		})
		assert.NotEqual(t, shared, leaseOf(t, s, "b", "me:2"), "the renewed hold was moved")
	})
}

// A cluster without space refuses a release, and to move the other holds of its etcd lease to another
// one. These are renewed nevertheless, and move once there is space.
func TestHoldsOfAFullCluster(t *testing.T) {
	t.Parallel()
	const ttl = time.Hour
	client := startCluster(t, single, nil).dial(t)
	s := openOn(t, client, "full")
	var clock atomic.Int64
	s.clock = func() time.Duration { return time.Duration(clock.Load()) }
	left, kept := request("me:1", ttl), request("me:2", ttl)
	kept.Name = "b"
	acquire(t, s, left)
	acquire(t, s, kept)
	shared := leaseOf(t, s, "a", "me:1")
	require.Equal(t, shared, leaseOf(t, s, "b", "me:2"))
	clock.Add(int64(ttl / 3)) // the lease is not one for new holds any more
	other := request("me:2", ttl)
	other.Name = "c"
	acquire(t, s, other)
	require.NotEqual(t, shared, leaseOf(t, s, "c", "me:2"))
	full := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	status, err := client.Status(t.Context(), client.Endpoints()[0])
	require.NoError(t, err)
	full.MemberID = status.Header.MemberId
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), full)
	require.NoError(t, err)
	free := *left
	free.Count = 0
	_, err = s.Release(t.Context(), &free)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	further := *kept
	further.Count = 2
	_, err = s.Acquire(t.Context(), &further)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	renews := func(names ...string) {
		t.Helper()
		clock.Add(int64(ttl / 3))
		var items []renewal.Item
		for _, name := range names {
			items = append(items, renewal.Item{Key: name, Owner: "me:2", Ref: driver.KindMutex, TTL: ttl})
		}
		s.Renew(t.Context(), items)
		for _, item := range items {
			require.NoError(t, item.Err)
			require.Equal(t, renewal.Renewed, item.Outcome)
			require.Equal(t, ttl, item.Given)
		}
	}
	for range 3 {
		renews("b") // there is no other lease, and none is granted
	}
	for range 3 {
		renews("c", "b") // that of c has room, but the record of b cannot be written
	}
	require.Equal(t, shared, leaseOf(t, s, "b", "me:2"))
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
	renews("c", "b")
	require.NotEqual(t, shared, leaseOf(t, s, "b", "me:2"))
}

// What keeps the store's own leases alive keeps no hold, of whatever TTL.
func TestLeasesOfTheStoreHaveNoHolds(t *testing.T) {
	t.Parallel()
	s := open(t)
	waiting := &driver.Hold{Kind: driver.KindMutex, Name: "w", Owner: "me:1", Count: 1, TTL: waitTTL}
	sub := subscribe(t, s, waiting, func(driver.Notice) {})
	defer sub.Close()
	for _, ttl := range []time.Duration{waitTTL, remainsTTL, sweepEvery} {
		h := request("me:2", ttl)
		acquire(t, s, h)
		id := leaseOf(t, s, "a", h.Owner)
		assert.NotEqual(t, s.waiting, id, "%v", ttl)
		for _, use := range []use{forRemains, forSweep} {
			own, err := s.leases.get(t.Context(), class{ttl, use})
			require.NoError(t, err)
			assert.NotEqual(t, own.id, id, "%v", ttl)
		}
		h.Count = 0
		release(t, s, h)
	}
}

// Tokens are revisions: neither a clock that is set back nor a record that is gone makes one smaller.
func TestTokensAreRevisions(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := acquire(t, s, request("me:1", time.Minute))
	v := answered(t, func() (version, error) { return s.read(t.Context(), "a") })
	assert.Equal(t, s.knownEpoch()+v.revision, first.Token)
	answered(t, func() (*clientv3.DeleteResponse, error) { return s.client.Delete(t.Context(), s.keys.lock("a")) })
	other := beside(t, s)
	other.now = func() time.Time { return time.Now().Add(-time.Hour) }
	second := acquire(t, other, request("you:1", time.Minute))
	assert.Greater(t, second.Token, first.Token)
}

// A hold whose etcd lease has ended is over, also if its record is not: another store has a part in
// that.
func TestEndedLeaseHasNoHolds(t *testing.T) {
	t.Parallel()
	s := open(t)
	read := func(owner string, count int64) *driver.Hold {
		return &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: owner, Count: count, TTL: time.Minute}
	}
	acquire(t, beside(t, s), read("you:1", 1))
	for _, request := range []func() bool{
		func() bool {
			a := asks(t, s, read("me:1", 2))
			return a.Verdict == driver.Granted
		},
		func() bool {
			held := release(t, s, read("me:1", 0))
			return held
		},
		func() bool {
			items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: driver.KindRead, TTL: time.Minute}}
			s.Renew(t.Context(), items)
			require.NoError(t, items[0].Err)
			return items[0].Outcome == renewal.Renewed
		},
		func() bool {
			info := answered(t, func() (driver.Info, error) { return s.Inspect(t.Context(), "a", driver.KindRead) })
			return len(info.Holders) != 1
		},
	} {
		acquire(t, s, read("me:1", 1))
		id := leaseOf(t, s, "a", "me:1")
		revoke(t, s, id)
		eventually(t, "the store notices it", func() bool { return s.leases.own(id) == nil })
		assert.False(t, request())
	}
}

// A lock that a release grants to a waiter that is gone, or does not request it, is free again without
// its process: no TTL ends it, since the store goes on waiting.
func TestGrantWithoutATakerExpires(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"it sends no request": false, "it has left": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTime(t, waitTTL/2, func(try *attempt) {
				holder := open(t)
				s := beside(t, holder)
				h := request("00000001-0000-4000-8000-000000000000:1", time.Minute)
				acquire(t, holder, h)
				waiter := request("00000002-0000-4000-8000-000000000000:1", time.Minute)
				waiter.Queue.Subscribed = true
				sub := subscribe(t, s, waiter, func(driver.Notice) {})
				leave := sync.OnceFunc(sub.Close)
				defer leave()
				a := asks(t, s, waiter)
				require.Equal(t, driver.Refused, a.Verdict)
				h.Count = 0
				release(t, holder, h)
				if !try.holds(!free(t, holder), "it is granted to the waiter") {
					return
				}
				if leaves {
					leave()
				}
				eventually(t, "it is free", func() bool { return free(t, holder) })
			})
		})
	}
}

// So it is if the watch of the waiter's store has missed the note of the grant.
func TestGrantThatAWatchHasMissedExpires(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	p := startProxy(t, c.members[0].client)
	cut, other := openOn(t, dial(t, []string{p.address()}, limit), "a"), openOn(t, c.dial(t), "a")
	h := request("00000001-0000-4000-8000-000000000000:1", time.Minute)
	acquire(t, other, h)
	waiter := request("00000002-0000-4000-8000-000000000000:1", time.Minute)
	waiter.Queue.Subscribed = true
	notices := make(chan driver.Notice, 1000)
	sub := subscribe(t, cut, waiter, func(n driver.Notice) { notices <- n })
	defer sub.Close()
	a := asks(t, cut, waiter)
	require.Equal(t, driver.Refused, a.Verdict)
	releaseUnseen(t, p, other, h)
	select {
	case <-notices:
	case <-time.After(limit):
		t.Fatal("the waiter was not notified")
	}
	eventually(t, "it is free", func() bool { return free(t, other) })
}

// A hold that an acquisition without an answer may have taken does not outlast its TTL because others
// by its etcd lease are renewed.
func TestDoubtfulHoldIsNotKept(t *testing.T) {
	t.Parallel()
	s := open(t)
	acquire(t, s, request("me:1", time.Minute))
	l := s.leases.own(leaseOf(t, s, "a", "me:1"))
	require.True(t, s.leases.keepable(l, s.clock()))
	late := hold{"b", "late:1"}
	s.leases.doubt(late, []*lease{l}, s.clock())
	items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: driver.KindMutex, TTL: time.Minute}}
	then := s.clock() + 40*time.Second
	shared, alone := s.share(items, then)
	assert.Empty(t, shared)
	assert.Len(t, alone, 1, "it is to move to another lease")
	s.leases.certain(late)
	shared, _ = s.share(items, then)
	assert.Len(t, shared, 1)
}

// Holds that are renewed stay on one etcd lease, and a renewal of all takes one keepalive.
func TestHoldsShareALease(t *testing.T) {
	t.Parallel()
	s := open(t)
	var items []renewal.Item
	ids := make(map[clientv3.LeaseID]bool)
	for i := range 200 {
		h := request(fmt.Sprintf("me:%d", i), time.Hour)
		h.Name = fmt.Sprintf("lock %d", i)
		acquire(t, s, h)
		items = append(items, renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL})
	}
	s.Renew(t.Context(), items)
	for _, item := range items {
		require.Equal(t, renewal.Renewed, item.Outcome, "%v", item.Err)
		ids[leaseOf(t, s, item.Key, item.Owner)] = true
	}
	assert.LessOrEqual(t, len(ids), 10, "etcd leases of 200 holds")
}

// A waiter is notified though the history that it would have to catch up with was compacted.
func TestCompactionDuringAWatch(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	p := startProxy(t, c.members[0].client)
	cut, other := openOn(t, dial(t, []string{p.address()}, limit), "a"), openOn(t, c.dial(t), "a")
	notices := make(chan driver.Notice, 1000)
	h := &driver.Hold{Kind: driver.KindWrite, Name: "a", Owner: "me:1", Count: 1, TTL: time.Minute}
	sub := subscribe(t, cut, h, func(n driver.Notice) { notices <- n })
	defer sub.Close()
	acquire(t, other, h)
	releaseUnseen(t, p, other, h)
	select {
	case n := <-notices:
		assert.Zero(t, n)
	case <-time.After(limit):
		t.Fatal("the waiter was not notified")
	}
}

// A cluster that is restored from a snapshot, and begins its epoch again, counts revisions that were there
// before. A store that writes nothing, as its waiters and holders wait, begins its watches again.
func TestRestoredClusterNotifiesWaiters(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	holder, waiter := openOn(t, c.dial(t), "a"), openOn(t, c.dial(t), "a")
	waiter.waitTTL = time.Hour
	h, waits := request("me:1", time.Hour), request("you:1", time.Hour)
	acquire(t, holder, h)
	notices := make(chan driver.Notice, 1000)
	sub := subscribe(t, waiter, waits, func(n driver.Notice) { notices <- n })
	defer sub.Close()

	restore := c.members[0].save(t)
	for range 100 { // the watch is at the revision of the last note
		answered(t, func() (*clientv3.PutResponse, error) {
			return holder.client.Put(t.Context(), holder.keys.note("a", machine.Topics(waits)[0]), "")
		})
		<-notices
	}
	restore()
	answered(t, func() (*clientv3.DeleteResponse, error) { return c.dial(t).Delete(t.Context(), holder.keys.epoch()) })
	h.Count = 0
	released(t, holder, h)
	for granted := false; !granted; {
		select {
		case <-notices:
			a := asks(t, waiter, waits)
			granted = a.Verdict == driver.Granted
		case <-time.After(limit):
			t.Fatal("the waiter was not notified")
		}
	}
}

// A cluster that lost its data counts revisions that were there before, that of its new epoch among them. A store
// that knows the former epoch grants nothing by it, nor by a record of before whose revision is there again.
func TestClusterMadeAnew(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	named := func(name, owner string, ttl time.Duration) *driver.Hold {
		h := request(owner, ttl)
		h.Name = name
		return h
	}
	s, other := openOn(t, c.dial(t), "a"), openOn(t, c.dial(t), "a")
	acquire(t, s, named("a", "me:1", time.Hour))
	acquire(t, other, named("b", "you:1", time.Hour))
	for range 20 {
		answered(t, func() (*clientv3.PutResponse, error) { return s.client.Put(t.Context(), "any", "") })
	}
	token := acquire(t, other, named("c", "you:2", time.Hour)).Token
	free := named("a", "me:1", time.Hour)
	free.Count = 0
	released(t, s, free)
	before := s.cached("a")
	epoch := func() int64 {
		response := answered(t, func() (*clientv3.GetResponse, error) { return c.dial(t).Get(t.Context(), s.keys.epoch()) })
		return response.Kvs[0].ModRevision
	}
	former := epoch()

	c.members[0].kill()
	c.members[0].lose(t)
	c.members[0].start(t)
	c.await(t)
	newer := openOn(t, c.dial(t), "a")
	acquire(t, newer, named("d", "it:1", time.Hour))
	require.Equal(t, former, epoch(), "the test is of no use otherwise")
	for revision := int64(0); revision < before.revision-1; {
		put := answered(t, func() (*clientv3.PutResponse, error) { return newer.client.Put(t.Context(), "any", "") })
		revision = put.Header.Revision
	}
	acquire(t, newer, named("a", "it:2", time.Hour))
	require.Equal(t, before.revision, newer.cached("a").revision, "the test is of no use otherwise")
	var a driver.Answer
	repeated(t, func() (err error) { // its leases have not ended by its clock: it needs another one
		a, err = s.Acquire(t.Context(), named("a", "me:2", 2*time.Hour))
		return err
	})
	assert.Equal(t, driver.Refused, a.Verdict, "broken promise: one owner holds a mutex")
	assert.Greater(t, acquire(t, s, named("c", "me:3", 2*time.Hour)).Token, token, "broken promise: tokens grow")
}

// A keepalive may see the epoch of a cluster that was made anew during a step. What was read before counts no
// more, as its revision may be there again, and the token is of the epoch in which the lock was granted.
func TestEpochThatChangesDuringAStep(t *testing.T) {
	t.Parallel()
	s := open(t)
	begun := func() {
		value := epochValue(s.knownEpoch() + 1)
		answered(t, func() (*clientv3.PutResponse, error) { return s.client.Put(t.Context(), s.keys.epoch(), value) })
		s.sawEpoch(&mvccpb.KeyValue{Value: []byte(value)})
	}
	acquire(t, s, request("me:1", time.Hour))
	made := 0
	o, err := s.step(t.Context(), "a", hold{}, func(w *work) []machine.Message {
		if made++; made == 1 {
			begun()
		}
		w.state.Release(w.now, &driver.Hold{Kind: driver.KindMutex, Owner: "me:1"})
		_, sent := w.state.Acquire(w.now, endless(request("me:2", time.Hour)))
		w.claims = wanted{owner: "me:2", ttl: time.Hour}
		return sent
	})
	require.NoError(t, err)
	assert.Equal(t, 2, made, "broken promise: a record of another cluster is written on")
	token := o.lastToken()
	begun()
	assert.Equal(t, token, o.lastToken(), "broken promise: tokens of a cluster made anew are larger")
}

// releaseUnseen releases a hold while p is cut, and compacts what watches through p have missed.
func releaseUnseen(t *testing.T, p *proxy, s *Store, h *driver.Hold) {
	t.Helper()
	p.set(func(string) bool { return true })
	h.Count = 0
	release(t, s, h)
	put := answered(t, func() (*clientv3.PutResponse, error) { return s.client.Put(t.Context(), "more", "") })
	answered(t, func() (*clientv3.CompactResponse, error) { return s.client.Compact(t.Context(), put.Header.Revision) })
	p.set(nil)
	p.reset()
}

// Stores with different prefixes share nothing, whatever prefixes and names are.
func TestPrefixesNeverMix(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"a/", "a//b", "/", "//"} {
		_, err := New(common(t).dial(t), Config{Prefix: prefix})
		assert.Error(t, err, "%q", prefix)
	}
	seen := make(map[string]string)
	for _, prefix := range []string{"", "a", "/a", "a/b", "a/b/lock", "a%2F", "leasewheel/a"} {
		k, err := newKeys(prefix)
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "/", "//", "a/b", "b/lock/a", "%2F", "a\x00b", "\xff", "lock/a", "straße"} {
			topic := machine.Topic{Kind: driver.KindFair, Of: "me:1/2"}
			for _, key := range []string{k.lock(name), k.note(name, topic), k.client(name)} {
				id := fmt.Sprintf("%q of %q", name, prefix)
				assert.NotContains(t, seen, key, "%s and %s", id, seen[key])
				seen[key] = id
			}
			back, ok := k.nameOf([]byte(k.lock(name)))
			assert.True(t, ok)
			assert.Equal(t, name, back)
		}
	}
	s := open(t)
	within := openOn(t, common(t).dial(t), strings.TrimSuffix(s.keys.prefix, "//")+"/a")
	acquire(t, s, request("me:1", time.Minute))
	acquire(t, within, request("me:2", time.Minute))
	names := answered(t, func() ([]string, error) { return s.names(t.Context(), "") })
	assert.Equal(t, []string{"a"}, names)
}

// fill has two stores leave keys: of a lock in which both have a part, of one that is free, and of a
// client.
func fill(t *testing.T, s, other *Store) {
	t.Helper()
	read := driver.Hold{Kind: driver.KindRead, Name: "rw", Owner: "me:1", Count: 1, TTL: time.Hour}
	acquire(t, s, &read)
	read.Owner = "you:1"
	acquire(t, other, &read)
	free := request("me:1", time.Hour)
	free.Name = "free"
	acquire(t, s, free)
	release(t, s, &driver.Hold{Kind: driver.KindMutex, Name: "free", Owner: "me:1"})
	repeated(t, func() error { return s.Announce(t.Context(), driver.Client{ID: "me", Since: time.Now()}, time.Hour) })
}

// Every key but the epoch ends by itself, or by a sweep.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	other := beside(t, s)
	fill(t, s, other)
	endless := func() (keys []string) {
		response := answered(t, func() (*clientv3.GetResponse, error) {
			return s.client.Get(t.Context(), s.keys.prefix, clientv3.WithPrefix())
		})
		for _, kv := range response.Kvs {
			if kv.Lease == 0 {
				keys = append(keys, strings.TrimPrefix(string(kv.Key), s.keys.prefix))
			}
		}
		return keys
	}
	assert.Equal(t, []string{"epoch", "lock/rw"}, endless(), "two stores have a part in one")
	other.mu.Lock()
	assert.True(t, other.sweeping, "it has written that one")
	other.mu.Unlock()
	for _, s := range []*Store{s, other} {
		revokeAll(t, s)
	}
	third := beside(t, s)
	eventually(t, "a sweep removes the rest", func() bool {
		_, _ = s.client.Delete(t.Context(), s.keys.sweep()) // one that was held up is over for this minute
		assert.True(t, third.sweep(t.Context()))
		return slices.Equal([]string{"epoch"}, endless())
	})
	assert.True(t, third.sweep(t.Context()), "this minute's sweep was made")
}

// Keys that were copied to another cluster have no leases there, as by etcdctl make-mirror: they hold no
// lock, and a sweep removes them.
func TestCopiedKeysHoldNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	other := beside(t, s)
	fill(t, s, other)
	acquire(t, s, request("me:1", time.Hour))
	s.sweep(t.Context())
	all := answered(t, func() (*clientv3.GetResponse, error) {
		return s.client.Get(t.Context(), s.keys.prefix, clientv3.WithPrefix())
	})
	copied := open(t) // on the same cluster, which makes no difference
	for _, kv := range all.Kvs {
		answered(t, func() (*clientv3.PutResponse, error) {
			return copied.client.Put(t.Context(), strings.Replace(string(kv.Key), s.keys.prefix, copied.keys.prefix, 1), string(kv.Value))
		})
	}

	acquire(t, copied, request("you:2", time.Hour))
	assert.True(t, copied.sweep(t.Context()))
	all = answered(t, func() (*clientv3.GetResponse, error) {
		return copied.client.Get(t.Context(), copied.keys.prefix, clientv3.WithPrefix())
	})
	for _, kv := range all.Kvs {
		assert.True(t, kv.Lease != 0 || string(kv.Key) == copied.keys.epoch(), "%s", kv.Key)
	}
}

// What another program has written to the key of the epoch is refused, by stores that know the former value, too:
// tokens would begin anew.
func TestForeignEpoch(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := acquire(t, s, request("me:1", time.Hour))
	for _, value := range []string{"another program's", "", "-1", "0", "007", strconv.FormatInt(math.MaxInt64, 10), strings.Repeat("9", 30)} {
		answered(t, func() (*clientv3.PutResponse, error) { return s.client.Put(t.Context(), s.keys.epoch(), value) })
		for _, store := range []*Store{s, beside(t, s)} {
			h := request("me:2", time.Hour)
			h.Name = "b"
			_, err := store.Acquire(t.Context(), h)
			require.ErrorIs(t, err, driver.ErrForeign, "broken promise: tokens grow")
			require.ErrorIs(t, err, driver.ErrNotDone)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
		}
	}
	answered(t, func() (*clientv3.DeleteResponse, error) { return s.client.Delete(t.Context(), s.keys.epoch()) })
	released(t, s, &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "me:1"})
	assert.Greater(t, acquire(t, s, request("me:3", time.Hour)).Token, first.Token)
}

// Where reads of keys alone leave out their etcd leases, as on etcd 3.7, these live nevertheless.
func TestKeysWithoutLeases(t *testing.T) {
	t.Parallel()
	strip := func(request *pb.RangeRequest, reply *pb.RangeResponse) {
		for _, kv := range reply.GetKvs() {
			if request.GetKeysOnly() {
				kv.Lease = 0
			}
		}
	}
	newer := func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, called, request, reply, conn, options...)
		switch r := request.(type) {
		case *pb.RangeRequest:
			strip(r, reply.(*pb.RangeResponse))
		case *pb.TxnRequest:
			answer, ops := reply.(*pb.TxnResponse), r.Failure
			if answer.Succeeded {
				ops = r.Success
			}
			for i, answer := range answer.Responses {
				strip(ops[i].GetRequestRange(), answer.GetResponseRange())
			}
		}
		return err
	}
	client, prefix := common(t).dial(t, grpc.WithChainUnaryInterceptor(newer)), fmt.Sprintf("test/%d", prefixes.Add(1))
	s, other := openOn(t, client, prefix), openOn(t, client, prefix)
	acquire(t, s, request("me:1", time.Hour))
	var a driver.Answer
	repeated(t, func() (err error) {
		a, err = other.Acquire(t.Context(), request("you:1", time.Hour))
		return err
	})
	require.Equal(t, driver.Refused, a.Verdict, "broken promise: one owner holds a mutex")
	response := answered(t, func() (*clientv3.GetResponse, error) {
		return other.get(t.Context(), s.keys.lease(leaseOf(t, s, "a", "me:1")))
	})
	assert.True(t, living(response.Kvs))
}

// A record may be written as a sweep looks for it: another one follows.
func TestSweepFollowsALateRecord(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.planSweep()
	assert.True(t, s.sweepsOn(false), "the record may not have been written yet")
	s.mu.Lock()
	s.planned = time.Now().Add(-2 * sweepEvery)
	s.mu.Unlock()
	assert.True(t, s.sweepsOn(true))
	assert.False(t, s.sweepsOn(false))
	s.planSweep()
	assert.True(t, s.sweepsOn(false))
}

// Servers that accept fewer operations in a transaction than renewals have are refused with the first
// lock, and not with the first renewal of many.
func TestServersWithFewOperations(t *testing.T) {
	t.Setenv("ETCD_MAX_TXN_OPS", "127")
	s := openOn(t, startCluster(t, single, nil).dial(t), "few")
	_, err := s.Acquire(t.Context(), request("me:1", time.Minute))
	require.ErrorContains(t, err, "too many operations")
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// What a store does not support is refused with the reason.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, k := range []driver.Kind{driver.KindSemaphore, driver.KindPermit, driver.KindLatch} {
		err := s.Supports(k)
		require.ErrorIs(t, err, driver.ErrUnsupported)
		assert.Contains(t, err.Error(), "no clock")
	}
	_, err := s.Acquire(t.Context(), request("me:1", 900*time.Millisecond))
	require.ErrorIs(t, err, driver.ErrUnsupported)
	require.ErrorIs(t, err, driver.ErrNotDone)
	l, err := lock.New(s, lock.Config{})
	require.NoError(t, err)
	defer l.Close()
	err = l.Semaphore("a").TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, lock.ErrUnsupported)
}

// An acquisition that may still be applied is prevented by a release that finds nothing, also if the
// lock was free and taken in between.
func TestReleasePreventsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := request("late:1", time.Minute)
	acquire(t, s, request("other:1", time.Minute)) // the store has an etcd lease
	release(t, s, &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "other:1"})

	// The transaction of an acquisition that is sent, but not applied yet.
	v := answered(t, func() (version, error) { return s.read(t.Context(), h.Name) })
	w, err := s.load(h.Name, v, map[clientv3.LeaseID]bool{})
	require.NoError(t, err)
	w.change(func(w *work) []machine.Message {
		_, sent := w.state.Acquire(w.now, endless(h))
		w.claims = wanted{owner: h.Owner, ttl: h.TTL}
		return sent
	})
	require.NoError(t, w.settle(t.Context()))
	require.Len(t, w.uses, 1)
	guard := s.leases.guards(w.uses)[0]
	s.leases.doubt(hold{h.Name, h.Owner}, w.uses, s.clock())

	held := release(t, s, &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "late:1"})
	assert.False(t, held)
	assert.Empty(t, s.leases.doubtful(hold{h.Name, h.Owner}), "renewals of others would move to another lease")
	v = answered(t, func() (version, error) { return s.read(t.Context(), h.Name) })
	response, err := s.client.Txn(context.Background()).If(
		clientv3.Compare(clientv3.ModRevision(s.keys.lock(h.Name)), "=", v.revision), // as if it had not changed
		clientv3.Compare(clientv3.ModRevision(w.uses[0].key), "=", guard),
	).Then(clientv3.OpPut(s.keys.lock(h.Name), "")).Commit()
	require.NoError(t, err)
	assert.False(t, response.Succeeded, "the acquisition is applied after its release")
	acquire(t, s, request("other:2", time.Minute))
}

// A client whose endpoints have a member that is no voter yet fails no request.
func TestLearner(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	m := &member{cluster: c, name: "learner", client: redistest.FreeAddress(t), peer: redistest.FreeAddress(t), joins: true}
	m.advertised = m.peer
	_, err := c.dial(t).MemberAddAsLearner(t.Context(), []string{"http://" + m.peer})
	require.NoError(t, err)
	c.members = append(c.members, m)
	m.start(t)
	client := m.dial(t)
	require.Eventually(t, func() bool {
		_, err := client.Get(t.Context(), "any", clientv3.WithSerializable())
		return err == nil
	}, limit, time.Millisecond)

	s := openOn(t, c.dial(t), "learner")
	mine := request("client:1", 10*time.Minute)
	items := []renewal.Item{{Key: mine.Name, Owner: mine.Owner, TTL: mine.TTL, Ref: mine.Kind}}
	for range 10 {
		acquire(t, s, mine)
		s.Renew(t.Context(), items)
		require.Equal(t, renewal.Renewed, items[0].Outcome, items[0].Err)
		_, err := s.Inspect(t.Context(), mine.Name, mine.Kind)
		require.NoError(t, err)
		free := *mine
		free.Count = 0
		release(t, s, &free)
	}
}

// Each request needs a leader: a member without one refuses it at once, and another one answers, rather than after
// the seconds for which the member waits for a leader.
func TestRequestsNeedALeader(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent, without := make(map[string]bool), make(map[string]bool)
	note := func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		mu.Lock()
		sent[called] = true
		if len(md[rpctypes.MetadataRequireLeaderKey]) == 0 {
			without[fmt.Sprint(called, " ", request)] = true
		}
		mu.Unlock()
		return invoke(ctx, called, request, reply, conn, options...)
	}
	s := openOn(t, common(t).dial(t, grpc.WithChainUnaryInterceptor(note)), fmt.Sprintf("test/%d", prefixes.Add(1)))
	h := request("me:1", time.Hour)
	sub := subscribe(t, s, h, func(driver.Notice) {})
	acquire(t, s, h)
	s.Renew(t.Context(), []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}})
	answered(t, func() (driver.Info, error) { return s.Inspect(t.Context(), h.Name, h.Kind) })
	answered(t, func() (any, error) { return nil, s.Announce(t.Context(), driver.Client{ID: "me"}, time.Hour) })
	for _, err := range s.List(t.Context(), "", func(string) bool { return true }) {
		assert.NoError(t, err)
	}
	sub.Close()
	answered(t, func() (driver.Info, error) { return s.ForceRelease(t.Context(), h.Name) })
	mu.Lock()
	defer mu.Unlock()
	assert.Subset(t, sent, map[string]bool{pb.KV_Range_FullMethodName: true, pb.KV_Txn_FullMethodName: true, pb.KV_Put_FullMethodName: true,
		pb.Lease_LeaseGrant_FullMethodName: true, pb.Lease_LeaseTimeToLive_FullMethodName: true})
	assert.Empty(t, without)
}

// So it is if the store could not write that the waiter has gone, whose process goes on: a waiter of etcd knows no
// TTL of what is granted to it.
func TestGrantToAWaiterThatCouldNotLeave(t *testing.T) {
	t.Parallel()
	holder := open(t)
	var failed atomic.Int32
	var fails atomic.Bool
	cut := func(ctx context.Context, called string, r, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if strings.HasSuffix(called, "/Txn") && strings.Contains(fmt.Sprint(r), holder.keys.lock("a")) && fails.Load() {
			failed.Add(1)
			return status.Error(codes.Internal, "the server is out of order")
		}
		return invoke(ctx, called, r, reply, conn, options...)
	}
	s := openOn(t, common(t).dial(t, grpc.WithChainUnaryInterceptor(cut)), strings.TrimSuffix(holder.keys.prefix, "//"))
	h := request("00000001-0000-4000-8000-000000000000:1", time.Hour)
	acquire(t, holder, h)
	waiter := request("00000002-0000-4000-8000-000000000000:1", time.Hour)
	waiter.Queue.Subscribed = true
	sub := subscribe(t, s, waiter, func(driver.Notice) {})
	a := asks(t, s, waiter)
	require.Equal(t, driver.Refused, a.Verdict)
	fails.Store(true)
	sub.Close()
	eventually(t, "the store has tried to write that", func() bool { return failed.Load() > 0 })
	fails.Store(false)
	h.Count = 0
	release(t, holder, h)
	eventually(t, "it is free", func() bool { return free(t, holder) })
}

// A request that meets others again and again reads anew what they have written, after a pause, in which the
// store's own release goes before it.
func TestRequestThatMeetsOthers(t *testing.T) {
	t.Parallel()
	other := open(t)
	key := other.keys.lock("a")
	var reads, conflicts atomic.Int64
	met, released := make(chan int64, 1), make(chan struct{})
	meets := func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		r, writes := request.(*pb.TxnRequest)
		if of, ok := request.(*pb.RangeRequest); ok && string(of.Key) == key {
			reads.Add(1)
		} else if writes && len(r.Compare) > 0 && strings.Contains(r.String(), "late:1") {
			select {
			case <-released:
				return invoke(ctx, called, request, reply, conn, options...)
			default:
			}
			now, err := other.client.Get(ctx, key)
			if err == nil { // another store writes first
				_, err = other.client.Put(ctx, key, string(now.Kvs[0].Value), clientv3.WithLease(clientv3.LeaseID(now.Kvs[0].Lease)))
			}
			if err != nil {
				return err
			}
			if conflicts.Add(1) == 5 {
				select {
				case met <- reads.Load():
				default: // an earlier attempt has been so far
				}
			}
		}
		return invoke(ctx, called, request, reply, conn, options...)
	}
	s := openOn(t, common(t).dial(t, grpc.WithChainUnaryInterceptor(meets)), strings.TrimSuffix(other.keys.prefix, "//"))
	read := func(owner string) *driver.Hold {
		return &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: owner, Count: 1, TTL: time.Hour}
	}
	acquire(t, s, read("h:1"))
	late := make(chan error, 1)
	go func() {
		err := driver.ErrUnavailable
		for errors.Is(err, driver.ErrUnavailable) && t.Context().Err() == nil {
			reads.Store(0)
			conflicts.Store(0)
			_, err = s.Acquire(t.Context(), read("late:1"))
		}
		late <- err
	}()
	assert.GreaterOrEqual(t, <-met, int64(3), "each attempt but the first two follows a read")
	gone := read("h:1")
	gone.Count = 0
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	repeated(t, func() error {
		_, err := s.Release(ctx, gone)
		return err
	})
	close(released)
	require.NoError(t, <-late)
}
