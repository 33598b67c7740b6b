package renewal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

// A lease on a wheel whose executor is full is lost at its until, and is renewed before: no
// executor of a user's can refuse what a lease depends on.
func TestFullExecutorKeepsNoLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		pool := wheel.NewPool(1, 1)
		defer pool.Close()
		shared := b.newWheel(wheel.Config{Executor: pool})
		defer shared.Stop()
		full := make(chan struct{})
		defer close(full)
		for range 2 {
			_, err := shared.Schedule(time.Millisecond, func() { <-full })
			require.NoError(b, err)
		}
		dog, err := New(b.store, Config{Wheel: shared})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		l := own.grant(Spec{Key: "k"})
		first := l.Until()
		time.Sleep(time.Minute)
		require.True(b, l.Valid())
		require.True(b, l.Until().After(first), "not renewed")

		b.node("", func(n *node) { n.mute = true })
		until := l.Until()
		own.lost(l, Unreachable)
		own.inTime(until)
	})
}
