package renewal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPassKeepsWhatIsLeft(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", Ref: 1, MaxHold: time.Hour})
		time.Sleep(2 * time.Second)
		until := l.Until()
		ctx, lost := l.Context(), l.Lost()
		told := make(chan error, 1)
		next, err := l.Pass(Spec{TTL: 15 * time.Second, Ref: 2, OnLost: func(err error) { told <- err }})
		require.NoError(b, err)

		require.Equal(b, ErrReleased, l.Err())
		require.ErrorIs(b, context.Cause(ctx), ErrReleased)
		select {
		case <-lost:
			b.Fatal("a lease that was passed on is not lost")
		default:
		}
		require.Equal(b, "k", next.Key())
		require.Equal(b, l.Owner(), next.Owner())
		require.Equal(b, 2, next.Ref())
		require.Equal(b, until, next.Until())
		require.True(b, next.Valid())
		require.Empty(b, b.take(), "nothing is sent")
		stats := b.dog.Stats()
		require.Equal(b, 1, stats.Held)

		time.Sleep(10 * time.Second) // past the renewal that was due already, at a third of 30 s
		for range 100 {
			time.Sleep(7 * time.Second)
			require.True(b, next.Valid(), "it is renewed like any lease")
			require.LessOrEqual(b, time.Until(next.Until()), 15*time.Second, "for its own TTL")
		}
		b.remove("k")
		require.ErrorIs(b, <-told, ErrLost)
	})
}

// A lease that is passed on with a longer TTL has the time that the store has given until it
// is renewed: its first request ends early enough to be sent again.
func TestPassToALongerTTL(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", TTL: 3 * time.Second})
		next, err := l.Pass(Spec{TTL: 10 * time.Minute})
		require.NoError(b, err)
		b.node("", func(n *node) { n.mute = true })
		b.awaitRequest()
		b.node("", func(n *node) { n.mute = false })
		time.Sleep(2 * time.Second)
		require.True(b, next.Valid())
		require.Greater(b, time.Until(next.Until()), 9*time.Minute)
	})
}

// The next holder's context ends the lease that is passed on to it, and that of the one before
// does not.
func TestPassToAnotherContext(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		before, endBefore := context.WithCancel(b.Context())
		ctx, end := context.WithCancelCause(b.Context())
		gone := errors.New("the next holder has gone")
		l := b.grant(Spec{Key: "k", Context: before})
		next, err := l.Pass(Spec{TTL: 30 * time.Second, Context: ctx})
		require.NoError(b, err)
		endBefore()
		synctest.Wait()
		require.NoError(b, next.Err())
		end(gone)
		synctest.Wait()
		require.ErrorIs(b, next.Err(), gone)
		require.ErrorIs(b, next.Err(), ErrLost)
	})
}

// A lease that is passed on repeatedly is still renewed when it is due.
func TestPassDoesNotPutTheRenewalOff(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		for range 120 {
			time.Sleep(time.Second)
			synctest.Wait() // for a renewal that falls on this very second
			next, err := l.Pass(Spec{TTL: 30 * time.Second})
			require.NoError(b, err)
			l = next
			require.Greater(b, time.Until(l.Until()), 15*time.Second)
		}
		b.stop(l)
		require.NoError(b, b.broken)
	})
}

func TestPassRefuses(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("slow", func(n *node) { n.before = time.Second })
		slow := b.grant(Spec{Key: "slow/k"})
		for len(b.take()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		_, err := slow.Pass(Spec{TTL: 30 * time.Second})
		require.ErrorIs(b, err, errRenewing, "the answer might come after its end")
		require.True(b, slow.Valid())
		b.stop(slow)

		l := b.grant(Spec{Key: "k"})
		_, err = l.Pass(Spec{TTL: time.Millisecond})
		require.ErrorContains(b, err, "TTL")
		over, cancel := context.WithCancelCause(b.Context())
		cancel(errors.New("the caller has gone"))
		_, err = l.Pass(Spec{TTL: time.Minute, Context: over})
		require.ErrorContains(b, err, "the caller has gone")
		require.True(b, l.Valid(), "after an error it is held as before")
		b.stop(l)
		_, err = l.Pass(Spec{TTL: 30 * time.Second})
		require.Equal(b, ErrReleased, err)

		gone := b.grant(Spec{Key: "gone", Fixed: true})
		b.lost(gone, Expired)
		_, err = gone.Pass(Spec{TTL: 30 * time.Second})
		require.ErrorIs(b, err, ErrLost)

		held := b.grant(Spec{Key: "held"})
		draining, cancelDrain := context.WithCancel(b.Context())
		cancelDrain()
		require.Error(b, b.dog.Drain(draining))
		_, err = held.Pass(Spec{TTL: 30 * time.Second})
		require.Equal(b, ErrClosed, err)
		require.True(b, held.Valid())
		b.stop(held)
	})
}

// A lease of before a suspend is not passed on, from the first instant on: its next holder
// would be granted what the store may have given to another.
func TestPassAfterASuspend(t *testing.T) {
	inClocks(t, Config{}, func(b *bench, k *clocks) {
		b.node("", func(n *node) { n.before = time.Second })
		l := b.grant(Spec{Key: "k"})
		k.sleep(5 * time.Second)
		_, err := l.Pass(Spec{TTL: 30 * time.Second})
		require.ErrorIs(b, err, errUnconfirmed, "before the dispatcher has noticed the jump")
		synctest.Wait()
		_, err = l.Pass(Spec{TTL: 30 * time.Second})
		require.ErrorIs(b, err, errUnconfirmed, "while the store is asked")
		time.Sleep(3 * time.Second)
		next, err := l.Pass(Spec{TTL: 30 * time.Second})
		require.NoError(b, err, "the store has confirmed it")
		require.True(b, next.Valid())
		b.stop(next)
	})
}
