package renewal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestUntilIsReckonedFromBeforeTheRequest(t *testing.T) {
	t0 := time.Now()
	require.Equal(t, t0.Add(29698*time.Millisecond), Until(t0, 30*time.Second))
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(minTTL), int64(maxTTL)).Draw(t, "ttl"))
		valid := validity(ttl)
		if valid <= 0 || valid > ttl-2*time.Millisecond {
			t.Fatalf("a lease of %v would be trusted for %v", ttl, valid)
		}
		// A store's clock may be fast by 1 %.
		if float64(valid)*1.01 > float64(ttl) {
			t.Fatalf("a store whose clock is fast ends a lease of %v before its %v are over", ttl, valid)
		}
	})
}

func TestLeaseIsKept(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", Ref: 7})
		require.Equal(b, "k", l.Key())
		require.Equal(b, "owner of k", l.Owner())
		require.Equal(b, 7, l.Ref())
		require.Equal(b, 30*time.Second, l.TTL())
		for range 1000 {
			time.Sleep(7 * time.Second)
			require.NoError(b, l.Err())
			require.NoError(b, l.Context().Err())
			require.True(b, l.Valid())
			require.Greater(b, time.Until(l.Until()), 19*time.Second)
		}
		b.stop(l)
		require.Equal(b, ErrReleased, l.Err())
		require.False(b, l.Valid())
		require.ErrorIs(b, context.Cause(l.Context()), ErrReleased)
		time.Sleep(time.Hour)
		require.NoError(b, b.broken)
	})
}

// A grant may last for less than the TTL that the renewals request.
func TestGrantsOfAnotherLengthThanTheRenewals(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		granted := time.Now()
		l := b.grant(Spec{Key: "k", First: 3 * time.Second})
		require.Equal(b, Until(granted, 3*time.Second).Add(-tick), l.Until())
		time.Sleep(time.Second + 100*time.Millisecond)
		require.Greater(b, time.Until(l.Until()), 28*time.Second, "renewed within a third of the grant, for the TTL")
		b.take()
		time.Sleep(6 * time.Second)
		require.Empty(b, b.take(), "from then on at the TTL's pace")
		b.stop(l)

		l = b.grant(Spec{Key: "k2", First: 3 * time.Second, Fixed: true})
		b.lost(l, Expired)
		_, err := b.dog.Watch(Spec{Key: "k", Owner: "o", TTL: time.Second, Granted: time.Now(), First: time.Millisecond})
		require.ErrorContains(b, err, "First")
	})
}

// A renewal that requests less time than is left may shorten the lease at the store although
// its reply is lost: the lease is lost here before it ends there.
func TestRequestForLessThanIsLeft(t *testing.T) {
	for name, grant := range map[string]func(b *bench) *Lease{
		"First": func(b *bench) *Lease { return b.grant(Spec{Key: "k", TTL: 3 * time.Second, First: 30 * time.Second}) },
		"Pass": func(b *bench) *Lease {
			l, err := b.grant(Spec{Key: "k"}).Pass(Spec{TTL: 3 * time.Second})
			require.NoError(b, err)
			return l
		},
		"Given": func(b *bench) *Lease {
			b.node("", func(n *node) { n.gives = 30 * time.Second })
			l := b.grant(Spec{Key: "k", TTL: 3 * time.Second})
			time.Sleep(time.Second + tick) // for its first renewal
			b.node("", func(n *node) { n.gives = 0 })
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				l := grant(b)
				b.node("", func(n *node) { n.noReply = true })
				b.awaitRequest()
				b.node("", func(n *node) { n.mute = true })
				until := l.Until()
				b.lost(l, Unreachable)
				b.inTime(until)
				_, held := b.get("k")
				require.True(b, held, "it was trusted beyond what the store keeps")
			})
		})
	}
}

// The renewal moves until from the instant before it was sent, not from that of its
// reply.
func TestUntilMovesFromWhenTheRenewalWasSent(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = time.Second, time.Second/2 }) // within its time limit
		l := b.grant(Spec{Key: "k"})
		var sent []request
		for len(sent) == 0 {
			time.Sleep(time.Second)
			sent = b.take()
		}
		require.Len(b, sent, 1)
		time.Sleep(3 * time.Second)
		require.Equal(b, Until(sent[0].at, 30*time.Second).Add(-tick), l.Until())
	})
}

func TestUntilStandsWhileNothingIsConfirmed(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.noReply = true })
		l := b.grant(Spec{Key: "k"})
		until := l.Until()
		require.Equal(b, Until(time.Now(), 30*time.Second).Add(-tick), until)
		time.Sleep(29 * time.Second)
		require.NotEmpty(b, b.take())
		require.Equal(b, until, l.Until())
	})
}

func TestLoneLeaseIsRenewedInATripOfItsOwn(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		granted := time.Now()
		b.grant(Spec{Key: "k"})
		time.Sleep(time.Hour)
		last := granted
		requests := b.take()
		require.Greater(b, len(requests), 300)
		for i, r := range requests {
			wait := r.at.Sub(last)
			last = r.at
			require.LessOrEqual(b, wait, 10*time.Second+tick)
			if i > 0 {
				require.Greater(b, wait, 9*time.Second-tick)
			} else {
				require.Greater(b, wait, 10*time.Second/4-tick)
			}
		}
	})
}

func TestContextAndLostAreTheSameEveryTime(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		require.Equal(b, l.Context(), l.Context())
		require.Equal(b, l.Lost(), l.Lost())
		b.stop(l)
		require.ErrorIs(b, l.Context().Err(), context.Canceled)
		select {
		case <-l.Lost():
			b.Fatal("a released lease is not lost")
		default:
		}
	})
}

// calling is a context that calls a function when it is asked for its end.
type calling struct {
	context.Context
	call func()
}

func (c *calling) Done() <-chan struct{} {
	if call := c.call; call != nil {
		c.call = nil
		call()
	}
	return c.Context.Done()
}

// Two calls of Context at the same time return one context, which ends with the lease.
func TestContextMadeTwiceAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		parent := &calling{Context: b.Context()}
		l := b.grant(Spec{Key: "k", Context: parent})
		first := make(chan context.Context, 1)
		parent.call = func() { first <- l.Context() }
		second := l.Context()
		require.Equal(b, <-first, second)
		b.stop(l)
		require.ErrorIs(b, context.Cause(second), ErrReleased)
	})
}

func TestContextCarriesTheValuesOfItsParent(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		type key struct{}
		l := b.grant(Spec{Key: "k", Context: context.WithValue(context.Background(), key{}, 7)})
		require.Equal(b, 7, l.Context().Value(key{}))
	})
}

func TestContextMadeAfterTheEnd(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		released := b.grant(Spec{Key: "a"})
		b.stop(released)
		require.ErrorIs(b, context.Cause(released.Context()), ErrReleased)
		select {
		case <-released.Lost():
			b.Fatal("a lease that was stopped is not lost")
		default:
		}
		for _, s := range []Spec{{Key: "b", Fixed: true}, {Key: "c", MaxHold: time.Second}} { // without and with rules
			lost := b.grant(s)
			time.Sleep(time.Minute)
			<-lost.Lost()
			require.ErrorIs(b, context.Cause(lost.Context()), ErrLost)
			require.NotErrorIs(b, lost.Err(), ErrReleased)
		}
	})
}

func TestWatchRefuses(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		time.Sleep(time.Hour)
		now := time.Now()
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("enough"))
		for name, test := range map[string]struct {
			spec Spec
			want string
		}{
			"no TTL":             {Spec{Granted: now}, "TTL 0s"},
			"TTL of two ticks":   {Spec{Granted: now, TTL: 2 * tick}, "TTL 20ms"},
			"TTL of ages":        {Spec{Granted: now, TTL: 1 << 62}, "TTL 1281023h53m38.427387904s"},
			"First of ages":      {Spec{Granted: now, TTL: time.Minute, First: 1 << 62}, "First 1281023h53m38.427387904s"},
			"never granted":      {Spec{TTL: time.Minute}, "has no Granted"},
			"granted tomorrow":   {Spec{TTL: time.Minute, Granted: now.Add(24 * time.Hour)}, "in the future"},
			"negative MaxHold":   {Spec{TTL: time.Minute, Granted: now, MaxHold: -1}, "MaxHold"},
			"negative Heartbeat": {Spec{TTL: time.Minute, Granted: now, Heartbeat: -1}, "Heartbeat"},
			"over already":       {Spec{TTL: time.Minute, Granted: now.Add(-time.Minute)}, "expired here"},
			"MaxHold over":       {Spec{TTL: time.Minute, Granted: now.Add(-time.Second), MaxHold: time.Second}, "held too long"},
			"context over":       {Spec{TTL: time.Minute, Granted: now, Context: ended}, "context ended: enough"},
		} {
			test.spec.Key = "the key"
			test.spec.Owner = "the owner"
			_, err := b.dog.Watch(test.spec)
			require.ErrorContains(b, err, test.want, name)
			require.ErrorContains(b, err, `"the key"`, name)
			require.NotContains(b, err.Error(), "the owner", name)
		}
		require.Zero(b, b.dog.Stats().Watched)
	})
}

// An instant without a monotonic reading, as of a message or a file, is one of the wall clock,
// which may have been set since the watchdog was made: a lease would be trusted for too long.
func TestWatchRefusesTheWallClock(t *testing.T) {
	dog, err := New(newStore(), Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dog.Close(context.Background())) }()
	s := Spec{Key: "k", TTL: time.Minute, Granted: time.Now().UTC()}
	_, err = dog.Watch(s)
	require.ErrorContains(t, err, "monotonic")
	s.Granted = time.Now().Add(-time.Second)
	_, err = dog.Watch(s)
	require.NoError(t, err)
}

func TestStopWaitsForTheRenewalInFlight(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = time.Second, time.Second/2 })
		l := b.grant(Spec{Key: "k"})
		b.awaitRequest()
		sent := b.take()[0].at
		b.stop(l)
		require.Equal(b, 1500*time.Millisecond, time.Since(sent))
		require.Zero(b, b.dog.Stats().InFlight)
		b.stop(l) // again
	})
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.deaf = time.Minute, true })
		l := b.grant(Spec{Key: "k", OnLost: func(error) { b.Error("a stopped lease is not lost") }})
		b.awaitRequest()
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(b, l.Stop(ctx), context.DeadlineExceeded)
		require.Equal(b, time.Second, time.Since(start))
		require.Equal(b, ErrReleased, l.Err())
		b.stop(l)
		require.Greater(b, time.Since(start), 50*time.Second)
		time.Sleep(time.Hour)
		require.Len(b, b.take(), 1)
	})
}

// Stops at any moment of a renewal's life leave nothing behind: not in the store, not in
// the watchdog, not in a later request.
func TestStopRacingRenewal(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = 7*time.Millisecond, 7*time.Millisecond })
		const ttl = time.Second
		done := make(chan *Lease)
		for i := range 1000 {
			go func() {
				l := b.grant(Spec{Key: fmt.Sprint("k", i), TTL: ttl})
				time.Sleep(time.Duration(i) * time.Millisecond / 2)
				assert.NoError(b, l.Stop(b.Context()))
				b.remove(l.Key()) // as the holder's own release does
				b.forbid(l.Owner())
				done <- l
			}()
		}
		for range 1000 {
			require.Equal(b, ErrReleased, (<-done).Err())
		}
		require.Empty(b, b.leases)
		require.Zero(b, b.dog.Stats().Held)
		require.EqualValues(b, 1000, b.dog.Stats().Released)
		require.EqualValues(b, 1, b.dog.wheel.Stats().Pending, "only the probe of the wheel has a timer")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(b, b.leases, "a renewal has brought back a lease")
	})
}

// A grant of long ago is over, however long ago: the arithmetic has ends.
func TestGrantOfLongAgo(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		for _, granted := range []time.Time{
			time.Time{}.Add(1), time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1850, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0),
		} {
			_, err := b.dog.Watch(Spec{Key: "k", TTL: 30 * time.Second, Granted: granted})
			require.ErrorIs(b, err, ErrLost, "granted at %v", granted)
		}
	})
}
