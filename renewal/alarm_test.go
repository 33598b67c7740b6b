package renewal

import (
	"sync/atomic"
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

// drop deletes a lease, and notices that.
func (a *alarming) drop(key string) {
	a.remove(key)
	a.lost()
}

// inAlarm runs f in virtual time, with a watchdog that is closed afterwards.
func inAlarm(t *testing.T, f func(b *bench, a *alarming)) {
	synctest.Test(t, func(t *testing.T) {
		a := &alarming{store: newStore()}
		dog, err := New(a, Config{})
		require.NoError(t, err)
		b := &bench{t, a.store, dog}
		defer func() {
			b.close()
			require.Nil(t, a.lost)
		}()
		f(b, a)
	})
}

// atAlarm waits for a loss that an alarm at an instant, and not a renewal when it is due, shows.
func (b *bench) atAlarm(l *Lease, at time.Time) {
	b.Helper()
	b.lost(l, Deleted)
	require.Less(b, time.Since(at), 3*time.Second)
}

// A loss that the store notices is reported at once, and costs the other leases nothing.
func TestAlarmReportsALossAtOnce(t *testing.T) {
	inAlarm(t, func(b *bench, a *alarming) {
		gone, kept := b.grant(Spec{Key: "gone", TTL: time.Hour}), b.grant(Spec{Key: "kept", TTL: time.Hour})
		time.Sleep(time.Minute)
		a.drop("gone")
		b.atAlarm(gone, time.Now())
		require.True(b, kept.Valid())
		b.stop(kept)
	})
}

// The reply to a renewal comes after the alarm, and is of before.
func TestAlarmDuringARenewal(t *testing.T) {
	inAlarm(t, func(b *bench, a *alarming) {
		b.node("", func(n *node) { n.after = time.Second })
		gone := b.grant(Spec{Key: "gone", TTL: time.Hour})
		b.awaitRequest()
		a.drop("gone")
		b.atAlarm(gone, time.Now())
	})
}

// A lease that was granted before the alarm is watched after it.
func TestAlarmBeforeWatch(t *testing.T) {
	inAlarm(t, func(b *bench, a *alarming) {
		granted := time.Now()
		time.Sleep(time.Second)
		a.lost()
		gone, err := b.dog.Watch(Spec{Key: "gone", TTL: time.Hour, Granted: granted})
		require.NoError(b, err)
		b.atAlarm(gone, time.Now())
		time.Sleep(time.Second)
		kept := b.grant(Spec{Key: "kept", TTL: time.Hour})
		b.take()
		time.Sleep(time.Second)
		require.Empty(b, b.take(), "granted after the alarm")
		b.stop(kept)
	})
}

// A lease is passed on between the alarm and its examination.
func TestAlarmBeforePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		dog, err := assemble(s, Config{}, new(clock))
		require.NoError(t, err)
		b := &bench{t, s, dog}
		l := b.grant(Spec{Key: "gone", TTL: time.Hour})
		time.Sleep(time.Second)
		b.remove("gone")
		dog.verify()
		next, err := l.Pass(Spec{TTL: time.Hour})
		go dog.run()
		defer b.close()
		require.NoError(t, err)
		b.atAlarm(next, time.Now())
	})
}

// An alarm comes while the holder's liveness function runs: it is not called a second time beside
// that, and the lease is in one request at a time.
func TestAlarmWhileAliveRuns(t *testing.T) {
	inAlarm(t, func(b *bench, a *alarming) {
		var calls atomic.Int64
		returns := make(chan bool)
		l := b.grant(Spec{Key: "k", TTL: time.Hour, Alive: func() bool { return calls.Add(1) > 0 && !<-returns }})
		for calls.Load() == 0 {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		a.lost()
		synctest.Wait()
		n := calls.Load()
		close(returns) // also for a second call
		require.EqualValues(b, 1, n)
		b.stop(l)
	})
}
