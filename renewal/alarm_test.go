package renewal

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// alarming is a store that notices losses.
type alarming struct {
	*store
	lost func() // nil once it is stopped
}

func (a *alarming) OnLoss(lost func()) (stop func()) {
	a.lost = lost
	return func() { a.lost = nil }
}

// A loss that the store notices is reported at once, and costs the other leases nothing.
func TestAlarmReportsALossAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &alarming{store: newStore()}
		dog, err := New(a, Config{})
		require.NoError(t, err)
		b := &bench{t, a.store, dog}
		gone, kept := b.grant(Spec{Key: "gone", TTL: time.Hour}), b.grant(Spec{Key: "kept", TTL: time.Hour})
		time.Sleep(time.Minute)
		begin := time.Now()
		a.mu.Lock()
		delete(a.leases, "gone")
		a.mu.Unlock()
		a.lost()
		b.lost(gone, Deleted)
		require.Zero(t, time.Since(begin).Truncate(time.Second), "and not at the renewal")
		require.True(t, kept.Valid())
		require.NoError(t, kept.Stop(t.Context()))
		require.NoError(t, dog.Close(context.Background()))
		require.Nil(t, a.lost)
	})
}
