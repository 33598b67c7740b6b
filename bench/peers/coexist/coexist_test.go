//go:build real

package coexist

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// patience limits waits that take a moment on an idle machine.
const patience = time.Minute

// await fails t unless a condition comes true in time.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for begin := time.Now(); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("within %v not: %s", patience, what)
		}
	}
}

// eachPeer runs a test for each peer, on a server of its own.
func eachPeer(t *testing.T, test func(t *testing.T, peer string, server *redistest.Server)) {
	t.Helper()
	t.Parallel()
	for _, peer := range peers {
		t.Run(peer, func(t *testing.T) {
			t.Parallel()
			test(t, peer, redistest.Start(t, redistest.Config{}))
		})
	}
}

// turnsOf returns how often a library's processes have held the lock.
func turnsOf(t *testing.T, admin *redis.Client, library string) int {
	t.Helper()
	n, err := admin.HGet(t.Context(), turns, library).Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	count, err2 := strconv.Atoi(n)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return count
}

// neverTogether fails t if two workers held the lock at once.
func neverTogether(t *testing.T, admin *redis.Client) {
	t.Helper()
	met, err := admin.LRange(t.Context(), overlaps, 0, 9).Result()
	if err != nil || len(met) > 0 {
		t.Errorf("two held the lock at once: %q %v", met, err)
	}
}

// One process of each library.
func TestTakeTurns(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		ours, theirs := start(t, server.URL(), leasewheels, "turns"), start(t, server.URL(), peer, "turns")
		const each = 20
		await(t, "each has had its turns", func() bool {
			return turnsOf(t, admin, leasewheels) >= each && turnsOf(t, admin, peer) >= each
		})
		ours.stop(t)
		theirs.stop(t)
		t.Logf("turns: leasewheel %d, %s %d", turnsOf(t, admin, leasewheels), peer, turnsOf(t, admin, peer))
		neverTogether(t, admin)
	})
}

// A process of a library that polls is granted the lock beside several processes of
// leasewheel that hand it to each other.
func TestCrowdLeavesAPeerItsTurn(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		for range 3 {
			start(t, server.URL(), leasewheels, "turns")
		}
		await(t, "the crowd is at work", func() bool { return turnsOf(t, admin, leasewheels) > 100 })
		start(t, server.URL(), peer, "turns")
		await(t, "the peer has had its turns", func() bool { return turnsOf(t, admin, peer) >= 4 })
		t.Logf("turns: leasewheel %d, %s %d", turnsOf(t, admin, leasewheels), peer, turnsOf(t, admin, peer))
		neverTogether(t, admin)
	})
}

// Workers are killed while they hold the lock, and others replace them.
func TestOutlivesTheKilled(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		for _, library := range []string{leasewheels, peer} {
			start(t, server.URL(), library, "turns")
		}
		for _, library := range []string{leasewheels, peer, leasewheels, peer} {
			victim := start(t, server.URL(), library, "turns")
			await(t, "the victim is at work", func() bool { return admin.Get(t.Context(), inside).Val() == victim.name })
			if err := admin.SAdd(t.Context(), dead, victim.name).Err(); err != nil {
				t.Fatal(err)
			}
			victim.kill()
			for _, alive := range []string{leasewheels, peer} {
				before := turnsOf(t, admin, alive)
				await(t, alive+" goes on", func() bool { return turnsOf(t, admin, alive) > before })
			}
		}
		neverTogether(t, admin)
	})
}

// A holder that dies blocks the other library for a TTL, and one that lives, for as
// long as it lives.
func TestTakesOverFromAKilledHolder(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		for _, libraries := range [][2]string{{leasewheels, peer}, {peer, leasewheels}} {
			holder := start(t, server.URL(), libraries[0], "hold")
			if !holder.stdout.Scan() {
				t.Fatalf("%s does not hold the lock: %s", holder.name, holder.stderr.String())
			}
			take, end, err := newLocking(libraries[1], admin, lockName)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			if libraries[0] == leasewheels { // alone among them, it renews
				ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
				if _, err := take(ctx); err == nil {
					t.Fatalf("%s has the lock that %s keeps alive", libraries[1], holder.name)
				}
				cancel()
			}
			holder.kill()
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			unlock, err := take(ctx)
			cancel()
			if err != nil {
				t.Fatalf("%s after the death of %s: %v", libraries[1], holder.name, err)
			}
			if waited := time.Since(begin); waited > ttl+5*time.Second {
				t.Errorf("%s waited %v for a TTL of %v", libraries[1], waited, ttl)
			}
			if err := unlock(t.Context()); err != nil {
				t.Errorf("%s: unlock: %v", libraries[1], err)
			}
		}
	})
}

// locker returns a locker in one of the formats.
func locker(t *testing.T, server *redistest.Server, f redisstore.Format, c lock.Config) *lock.Locker {
	t.Helper()
	store, err := redisstore.New(server.Client(t), redisstore.Config{Format: f})
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.New(store, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Peers publish no release. A waiter detects one long before the end of the lease and of the
// slow poll.
func TestDetectsAPeersReleaseByPolling(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		l := locker(t, server, redisstore.FormatPlain, lock.Config{Poll: time.Hour})
		admin := server.Client(t)
		for range 5 {
			unlock := takenBy(t, peer, admin, time.Hour)
			got := make(chan error)
			var lease *lock.Lease
			go func() {
				var err error
				lease, err = l.Mutex(lockName).Lock(t.Context())
				got <- err
			}()
			await(t, "somebody waits", func() bool {
				return admin.PubSubNumSub(t.Context(), "redisson_lock__channel:{"+lockName+"}").Val()["redisson_lock__channel:{"+lockName+"}"] == 1
			})
			unlock()
			select {
			case err := <-got:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(patience):
				t.Fatal("nobody has noticed the release")
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// takenBy acquires the lock through a peer.
func takenBy(t *testing.T, peer string, client *redis.Client, ttl time.Duration) (unlock func()) {
	t.Helper()
	if peer == redsyncs {
		m := redsync.New(goredis.NewPool(client)).NewMutex(lockName, redsync.WithExpiry(ttl))
		if err := m.TryLock(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if ok, err := m.Unlock(); !ok || err != nil {
				t.Errorf("redsync's unlock: %v, %v", ok, err)
			}
		}
	}
	l, err := redislock.New(client).Obtain(t.Context(), lockName, ttl, &redislock.Options{Metadata: "somebody's job"})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("redislock's release: %v", err)
		}
	}
}

// refusedTo checks that a peer is refused as by a lock of its own.
func refusedTo(t *testing.T, peer string, client *redis.Client) {
	t.Helper()
	if peer == redsyncs {
		err := redsync.New(goredis.NewPool(client)).NewMutex(lockName).TryLock()
		var taken *redsync.ErrTaken
		if !errors.As(err, &taken) {
			t.Errorf("redsync is told %v", err)
		}
		return
	}
	if _, err := redislock.New(client).Obtain(t.Context(), lockName, ttl, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Errorf("redislock is told %v", err)
	}
}

// leasewheel and its peers regard each other's locks as their own.
func TestLooksLikeAPeersLock(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		l := locker(t, server, redisstore.FormatPlain, lock.Config{})
		lease, err := l.Mutex(lockName).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refusedTo(t, peer, admin)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}

		unlock := takenBy(t, peer, admin, time.Hour)
		_, err = l.Mutex(lockName).TryLock(t.Context())
		var taken *lock.NotAcquiredError
		if !errors.As(err, &taken) || taken.Foreign || taken.TTL < 50*time.Minute {
			t.Errorf("of %s's lock is said %v", peer, err)
		}
		info, err := l.Inspect(t.Context(), lockName, driver.KindMutex)
		if err != nil || info.HolderCount != 1 || info.Foreign != "" || info.Holders[0].Owner != admin.Get(t.Context(), lockName).Val() {
			t.Errorf("of %s's lock is told %+v, %v", peer, info, err)
		}
		names := 0
		for info, err := range l.List(t.Context(), "*") {
			if err != nil || info.Name != lockName {
				t.Errorf("listed is %+v, %v", info, err)
			}
			names++
		}
		if names != 1 {
			t.Errorf("%d locks are listed", names)
		}
		unlock()
	})
}

// A former holder does not disturb a peer that has taken over its lost lock, and its loss is
// reported.
func TestReportsAPeersTakeover(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		l := locker(t, server, redisstore.FormatPlain, lock.Config{TTL: ttl})
		lease, err := l.Mutex(lockName).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.Del(t.Context(), lockName).Err(); err != nil {
			t.Fatal(err)
		}
		unlock := takenBy(t, peer, admin, time.Hour)
		select {
		case <-lease.Lost():
		case <-time.After(patience):
			t.Fatal("the holder was not told")
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("unlock of what %s has taken: %v", peer, err)
		}
		unlock()
	})
}

// With two formats on one name, each finds the name taken.
func TestFindsOtherFormatsInTheWay(t *testing.T) {
	eachPeer(t, func(t *testing.T, peer string, server *redistest.Server) {
		admin := server.Client(t)
		hash := locker(t, server, redisstore.FormatRedisson, lock.Config{})
		plain := locker(t, server, redisstore.FormatPlain, lock.Config{})
		unlock := takenBy(t, peer, admin, time.Hour)
		_, err := hash.Mutex(lockName).TryLock(t.Context())
		var taken *lock.NotAcquiredError
		if !errors.As(err, &taken) || !errors.Is(err, lock.ErrForeign) || taken.TTL < 50*time.Minute {
			t.Errorf("of %s's lock is said, in Redisson's format, %v", peer, err)
		}
		got := make(chan error)
		go func() { got <- hash.Mutex(lockName).Do(t.Context(), func(context.Context) error { return nil }) }()
		unlock()
		if err := <-got; err != nil {
			t.Errorf("after %s's release: %v", peer, err)
		}

		lease, err := hash.Mutex(lockName).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plain.Mutex(lockName).TryLock(t.Context()); !errors.Is(err, lock.ErrForeign) {
			t.Errorf("of Redisson's lock is said, in the plain format, %v", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("unlock beside a plain locker: %v", err)
		}
	})
}
