package renewal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// clocks are the readings of a machine's clocks beside the monotonic one.
type clocks struct {
	mu         sync.Mutex
	wall, boot time.Duration
	noBoot     bool
}

func (c *clocks) offsets() (wall, boot time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall, c.boot, !c.noBoot
}

// part sets the clocks ahead, once all that is due at this instant is done: a check of the
// clocks, which may be, does not race with the jump.
func (c *clocks) part(wall, boot time.Duration) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += wall
	c.boot += boot
}

// sleep is a suspend of the machine.
func (c *clocks) sleep(d time.Duration) { c.part(d, d) }

// step sets the wall clock.
func (c *clocks) step(d time.Duration) { c.part(d, 0) }

func (c *clocks) withoutBoot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noBoot = true
}

// inClocks is inBubble on a machine whose clocks can diverge.
func inClocks(t *testing.T, c Config, f func(*bench, *clocks)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, k := newStore(), new(clocks)
		dog, err := assemble(s, c, &clock{offsets: k.offsets})
		require.NoError(t, err)
		go dog.run()
		b := &bench{t, s, dog}
		defer b.close()
		f(b, k)
	})
}

// pass is time on the store's clock alone.
func (s *store) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, g := range s.leases {
		g.expires = g.expires.Add(-d)
		s.leases[key] = g
	}
}

func TestSuspendBeyondUntil(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l, fixed := b.grant(Spec{Key: "k"}), b.grant(Spec{Key: "fixed", Fixed: true})
		time.Sleep(2 * time.Second)
		b.pass(28 * time.Second)
		k.sleep(28 * time.Second)
		require.False(b, l.Valid(), "at once, whether anybody has noticed or not")
		woken := time.Now()
		b.lost(l, Expired)
		b.lost(fixed, Expired)
		require.LessOrEqual(b, time.Since(woken), defaultCheckEvery)
		require.False(b, time.Now().Before(l.Until()))
		require.Empty(b, b.take(), "there was nothing to ask for any more")
	})
}

func TestSuspendWithinUntil(t *testing.T) {
	var told []Jump
	var mu sync.Mutex
	o := &Observer{Jump: func(j Jump) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, j)
	}}
	inClocks(t, Config{Observer: o}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.before = time.Second })
		l, fixed := b.grant(Spec{Key: "k"}), b.grant(Spec{Key: "fixed", Fixed: true})
		end := fixed.Until().Add(-20 * time.Second)
		time.Sleep(2 * time.Second)
		require.True(b, l.Valid())
		b.pass(20 * time.Second)
		k.sleep(20 * time.Second)
		b.dog.mu.Lock() // the first Valid wakes the dispatcher, which confirms the fixed lease
		valid, fixedValid := l.Valid(), fixed.Valid()
		b.dog.mu.Unlock()
		require.False(b, valid)
		require.False(b, fixedValid)
		synctest.Wait()
		require.False(b, l.Valid(), "noticed, but not confirmed")
		require.True(b, fixed.Valid(), "it is never renewed: the corrected time is its only check")
		require.NoError(b, l.Err())
		require.Equal(b, 1, b.dog.Stats().Suspect)
		require.Len(b, b.take(), 1, "the store is asked at once")
		time.Sleep(time.Second + 1)
		require.True(b, l.Valid(), "confirmed")
		require.Zero(b, b.dog.Stats().Suspect)

		b.lost(fixed, Expired)
		b.inTime(end)
		time.Sleep(time.Minute)
		require.True(b, l.Valid())
	})
	require.Equal(t, []Jump{{Slept: 20 * time.Second, Suspect: 2}}, told)
}

// A lease that the store no longer has after a suspend is lost, although its time was not
// over here.
func TestSuspendInWhichTheLeaseWasTaken(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l := b.grant(Spec{Key: "k"})
		time.Sleep(time.Second)
		b.remove("k")
		require.True(b, b.acquire("k", "another", time.Minute))
		k.sleep(5 * time.Second)
		woken := time.Now()
		b.lost(l, TakenOver)
		require.LessOrEqual(b, time.Since(woken), defaultCheckEvery)
	})
}

// A renewal that was in flight when the machine was suspended confirms nothing for the
// time after; its result still counts from when it was sent.
func TestSuspendWhileARenewalIsInFlight(t *testing.T) {
	inClocks(t, Config{RequestTimeout: time.Minute}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.after, n.deaf = 3*time.Second, true })
		l := b.grant(Spec{Key: "k"})
		b.awaitRequest()
		sent := b.take()[0].at
		b.pass(10 * time.Second)
		k.sleep(10 * time.Second)
		time.Sleep(3*time.Second - 1)
		require.False(b, l.Valid())
		require.NoError(b, l.Err())
		b.node("", func(n *node) { *n = node{before: time.Second} })
		time.Sleep(time.Second / 2)
		require.Equal(b, Until(sent, 30*time.Second).Add(-10*time.Second-tick), l.Until(), "10 s of it were slept away")
		require.False(b, l.Valid(), "answered, but asked too early")
		require.Len(b, b.take(), 1, "so it is asked again at once")
		time.Sleep(time.Second)
		require.True(b, l.Valid())
	})
}

// A loss is reported by the suspend's length earlier, for every outcome of a renewal that
// was in flight during the suspend.
func TestLossAfterASuspendWithARenewalInFlight(t *testing.T) {
	for name, trouble := range map[string]func(*node){
		"answered":     func(n *node) { n.after, n.deaf = time.Second, true },
		"not answered": func(n *node) { n.before = time.Second; n.mute = true },
	} {
		t.Run(name, func(t *testing.T) {
			inClocks(t, Config{RequestTimeout: time.Second}, func(b *bench, k *clocks) {
				b.node("", trouble)
				l := b.grant(Spec{Key: "k"})
				b.awaitRequest()
				k.sleep(15 * time.Second)
				b.node("", func(n *node) { n.mute = true })
				time.Sleep(2 * time.Second)
				require.False(b, l.Valid())
				until := l.Until()
				b.lost(l, Unreachable)
				b.inTime(until)
			})
		})
	}
}

// The reply to a renewal comes between the detection of a suspend and the examination of
// the leases: the timer is armed for later than the lease now lasts.
func TestAnswerBetweenNoticeAndLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStore(), new(clocks)
		dog, err := assemble(s, Config{}, &clock{offsets: k.offsets})
		require.NoError(t, err)
		b := &bench{t, s, dog}
		defer b.close()
		l := b.grant(Spec{Key: "k"})
		time.Sleep(10*time.Second + tick)
		dog.mu.Lock()
		dog.collectDue()
		request := dog.dispatch(dog.clock.now())
		dog.mu.Unlock()
		require.NoError(t, dog.callRenew(request))
		k.sleep(15 * time.Second)
		dog.mu.Lock()
		dog.checkClocks()
		dog.mu.Unlock()
		require.Nil(t, dog.complete(request, nil))
		b.node("", func(n *node) { n.mute = true })
		go dog.run()
		until := l.Until()
		b.lost(l, Unreachable)
		b.inTime(until)
	})
}

// A suspended machine gives no heartbeat, which is no missed one.
func TestSuspendIsNoMissedHeartbeat(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l := b.grant(Spec{Key: "k", Heartbeat: 4 * time.Second})
		time.Sleep(3 * time.Second)
		k.sleep(10 * time.Second)
		end := time.Now().Add(time.Second)
		time.Sleep(time.Second - 1)
		require.NoError(b, l.Err())
		b.lost(l, NoHeartbeat)
		b.inTime(end)
	})
}

func TestWallClockIsStepped(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, leastStep, -leastStep} {
		t.Run(step.String(), func(t *testing.T) {
			inClocks(t, Config{}, func(b *bench, k *clocks) {
				l := b.grant(Spec{Key: "k"})
				until := l.Until()
				time.Sleep(time.Second)
				k.step(step)
				require.False(b, l.Valid())
				time.Sleep(defaultCheckEvery)
				synctest.Wait()
				require.True(b, l.Valid())
				require.Len(b, b.take(), 1)
				require.True(b, l.Until().After(until))
				require.EqualValues(b, 1, b.dog.Stats().Jumps)
				time.Sleep(time.Minute)
				require.EqualValues(b, 1, b.dog.Stats().Jumps)
			})
		})
	}
}

// A wall clock that is slewed, however far in the end, is no step.
func TestWallClockIsSteered(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l := b.grant(Spec{Key: "k"})
		for range 1000 {
			time.Sleep(defaultCheckEvery)
			k.step(defaultCheckEvery / 10)
			require.True(b, l.Valid())
		}
		require.Zero(b, b.dog.Stats().Jumps)
	})
}

// Without a clock that counts suspend, a jump of the wall clock counts as the worse of
// the two: a suspend.
func TestWallClockJumpsWithoutABootClock(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		k.withoutBoot()
		time.Sleep(time.Second)
		l := b.grant(Spec{Key: "k"})
		time.Sleep(time.Second)
		k.step(-time.Hour)
		time.Sleep(defaultCheckEvery)
		synctest.Wait()
		require.True(b, l.Valid())
		k.step(time.Hour)
		b.lost(l, Expired)
	})
}

// One reading that was interrupted between the wall clock and the monotonic one does not
// make a step.
func TestGlanceThatWasInterrupted(t *testing.T) {
	glances := 0
	c := &clock{offsets: func() (wall, boot time.Duration, ok bool) {
		if glances++; glances%2 == 0 {
			return -time.Second, 0, true
		}
		return 0, 0, true
	}}
	c.start()
	for range 100 {
		require.False(t, c.jumped())
		require.False(t, c.check().happened())
	}
	require.Zero(t, c.wall.Load())
}

// Two readings that were interrupted between two clocks do not make a suspend.
func TestLookThatWasInterrupted(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l := b.grant(Spec{Key: "k"})
		k.part(0, -3*time.Second)
		time.Sleep(2 * defaultCheckEvery)
		k.part(0, 3*time.Second)
		time.Sleep(2 * defaultCheckEvery)
		require.True(b, l.Valid())
		require.Zero(b, b.dog.Stats().Jumps)
	})
}

// A lease that was requested before the suspend and is watched after part of its time has
// passed in it.
func TestGrantedBeforeASuspend(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.before = time.Second })
		time.Sleep(time.Hour)
		for _, noticed := range []bool{false, true} {
			granted := time.Now()
			time.Sleep(time.Second)
			k.sleep(20 * time.Second)
			if noticed {
				time.Sleep(2 * defaultCheckEvery)
				b.dog.kick()
				synctest.Wait()
			}
			require.True(b, b.acquire("k", "o", 30*time.Second))
			l, err := b.dog.Watch(Spec{Key: "k", Owner: "o", TTL: 30 * time.Second, Granted: granted})
			require.NoError(b, err)
			require.Equal(b, Until(granted, 30*time.Second).Add(-20*time.Second-tick), l.Until())
			require.True(b, l.Valid(), "its grant has been reckoned with")
			b.stop(l)
			b.remove("k")
			b.gone = map[string]bool{}
		}
	})
}

// All leases are renewed at once after a jump, however many there are, and another jump
// meanwhile does no harm.
func TestManyLeasesAreDoubted(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.before = 10 * time.Millisecond })
		leases := b.grantMany(1000, "k", atOnce)
		for i := range 100 {
			leases = append(leases, b.grant(Spec{Key: fmt.Sprint("vouched", i), Alive: func() bool { return true }}))
		}
		time.Sleep(5 * time.Second)
		b.remove("k7")
		for range 3 {
			k.sleep(time.Second)
			time.Sleep(defaultCheckEvery)
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		b.isLost(leases[7], Deleted)
		for i, l := range leases {
			require.Equal(b, i != 7, l.Valid())
		}
		stats := b.dog.Stats()
		require.Zero(b, stats.Suspect)
		require.EqualValues(b, 3, stats.Jumps)
		time.Sleep(time.Minute)
		require.EqualValues(b, 1, b.dog.Stats().Lost.Total())
	})
}

// The real clocks agree while the machine is awake, and a watchdog without other clocks
// compares them.
func TestRealClocksAgree(t *testing.T) {
	w, err := New(newStore(), Config{})
	require.NoError(t, err)
	l, err := w.Watch(Spec{Key: "k", TTL: time.Hour, Granted: time.Now()})
	require.NoError(t, err)
	require.NotNil(t, w.clock.offsets)
	for range 1000 {
		require.True(t, l.Valid())
	}
	require.NoError(t, l.Stop(context.Background()))
	require.NoError(t, w.Close(context.Background()))
	require.Zero(t, w.Stats().Jumps)
}

// A lease that was granted before several suspends is as old as all of them.
func TestSuspendsBetweenGrantAndWatch(t *testing.T) {
	for _, suspends := range []int{1, 2, 3, keptSleeps, keptSleeps + 1, 3 * keptSleeps} {
		t.Run(fmt.Sprint(suspends), func(t *testing.T) {
			inClocks(t, Config{}, func(b *bench, k *clocks) {
				b.grant(Spec{Key: "other", TTL: time.Hour}) // so that the clocks are looked at
				suspend := func() {
					b.pass(time.Minute)
					k.sleep(time.Minute)
					time.Sleep(time.Second)
				}
				suspend()
				asked := time.Now()
				time.Sleep(time.Nanosecond)
				for range suspends {
					suspend()
				}
				lasted := time.Since(asked) + time.Duration(suspends)*time.Minute
				_, err := b.dog.Watch(Spec{Key: "over", Owner: "o", TTL: lasted, Granted: asked})
				require.ErrorIs(b, err, ErrLost)

				// Fixed, since a renewal may be due as soon as the lease is watched.
				spec := Spec{Key: "lasts", Owner: "o", TTL: lasted + time.Hour, Granted: asked, Fixed: true}
				require.True(b, b.acquire(spec.Key, spec.Owner, time.Hour))
				l, err := b.dog.Watch(spec)
				require.NoError(b, err)
				left := b.dog.validity(spec.TTL) - lasted
				if suspends >= keptSleeps { // the one before the grant may be later
					left -= time.Minute
				}
				require.Equal(b, left, time.Until(l.Until()))
			})
		})
	}
}

// The TTL that a store gives is bounded, as those that users request are: the watchdog's
// arithmetic has ends.
func TestStoreGivesTooLongATTL(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.gives = 40 * 365 * 24 * time.Hour })
		l := b.grant(Spec{Key: "k"})
		time.Sleep(10*time.Second + 2*tick)
		synctest.Wait()
		require.Len(b, b.take(), 1)
		require.LessOrEqual(b, time.Until(l.Until()), maxTTL)
		k.step(time.Hour) // renews it at once
		time.Sleep(time.Second)
		require.Len(b, b.take(), 1)
		require.True(b, l.Valid())
	})
}

// A suspended machine gives no heartbeat: the time in suspend does not count.
func TestHeartbeatAfterASuspend(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		l := b.grant(Spec{Key: "k", TTL: time.Minute, Heartbeat: 10 * time.Second})
		time.Sleep(3 * time.Second)
		l.Beat()
		time.Sleep(5 * time.Second)
		b.pass(20 * time.Second)
		k.sleep(20 * time.Second)
		time.Sleep(5*time.Second - 2*tick)
		require.NoError(b, l.Err())
		l.Beat()
		beat := time.Now()
		b.lost(l, NoHeartbeat)
		require.GreaterOrEqual(b, time.Since(beat), 10*time.Second)
		require.LessOrEqual(b, time.Since(beat), 10*time.Second+tick)
	})
}
