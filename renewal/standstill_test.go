package renewal

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// standStill lets d pass at one instant, as it does for a process that was stopped and
// continues. Timers that are due by then are the caller's: they fire in any order.
func (b *bench) standStill(d time.Duration) {
	synctest.Wait()
	b.dog.clock.slept.Add(int64(d))
	b.pass(d)
}

// wakeUps are the orders in which a process that continues may run.
var wakeUps = map[string]func(b *bench, leases []*Lease){
	"the wheel first": func(_ *bench, leases []*Lease) {
		for _, l := range leases {
			l.expire()
		}
	},
	"the dispatcher first": func(b *bench, _ []*Lease) { b.dog.kick() },
	"the replies first":    func(*bench, []*Lease) { time.Sleep(5 * time.Second) },
}

// eachWakeUp runs f with each of the orders.
func eachWakeUp(t *testing.T, c Config, f func(b *bench, wakeUp func(...*Lease))) {
	t.Helper()
	for name, order := range wakeUps {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c, func(b *bench) {
				f(b, func(leases ...*Lease) {
					order(b, leases)
					synctest.Wait()
					for _, l := range leases { // in the end they all fire
						l.expire()
					}
				})
			})
		})
	}
}

// After a standstill no renewal is sent for a lease whose time is over. The lease has
// expired here: the store is not to blame.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	eachWakeUp(t, Config{}, func(b *bench, wakeUp func(...*Lease)) {
		over := b.grant(Spec{Key: "over"})
		long := b.grant(Spec{Key: "long", TTL: time.Hour})
		b.standStill(40 * time.Second)
		wakeUp(over)
		require.NoError(b, b.isLost(over, Expired).Err)
		require.Empty(b, b.take(), "there is nothing to ask for any more")
		time.Sleep(3 * time.Hour)
		require.NoError(b, long.Err())
	})
}

// A process that stood still has let its leases expire, whatever it was about to do: a reply
// that waits, a request in flight or in a queue show no fault of the store.
func TestStandstillIsNotTheStores(t *testing.T) {
	eachWakeUp(t, Config{BatchSize: 2, GroupParallel: 1}, func(b *bench, wakeUp func(...*Lease)) {
		b.node("", func(n *node) { n.after = time.Second }) // the replies are on their way
		var leases []*Lease
		open := b.shut()
		for i := range 6 {
			leases = append(leases, b.grant(Spec{Key: fmt.Sprint(i)}))
		}
		time.Sleep(11 * time.Second)
		open()
		synctest.Wait()
		require.Equal(b, 1, b.dog.Stats().InFlight)
		require.Equal(b, 4, b.dog.Stats().Queued)
		b.standStill(40 * time.Second)
		wakeUp(leases...)
		for _, l := range leases {
			b.isLost(l, Expired)
		}
		time.Sleep(time.Minute)
	})
}

// A request that failed because the process stood still is no failure of the store, which is
// not blamed for a later standstill either.
func TestRequestDuringAStandstillIsNoFailure(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", TTL: 10 * time.Minute})
		b.node("", func(n *node) { n.mute = true })
		b.awaitRequest()
		b.standStill(time.Minute)
		b.node("", func(n *node) { n.mute, n.after = false, time.Second })
		time.Sleep(2*time.Second + time.Millisecond) // the request ends
		synctest.Wait()
		require.NoError(b, l.Err())
		require.Zero(b, b.dog.Stats().Silent)
		b.awaitRequest()
		b.standStill(10 * time.Minute)
		l.expire()
		b.isLost(l, Expired)
		time.Sleep(time.Minute)
	})
}

// The cause of a loss by a standstill is a request that was in flight during an earlier one only if that
// had reached its limit before.
func TestLossAfterARequestOfTwoStandstills(t *testing.T) {
	for name, test := range map[string]struct {
		runs  time.Duration // before the first standstill, since the request
		cause Cause
	}{
		"within its limit": {time.Second, Expired},
		"hanging":          {time.Minute, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				l := b.grant(Spec{Key: "k", TTL: 10 * time.Minute})
				b.node("", func(n *node) {
					n.deaf, n.before, n.poison = true, test.runs+time.Second, map[string]bool{"k": true}
				})
				b.awaitRequest()
				time.Sleep(test.runs)
				b.standStill(time.Until(l.Until()) - 100*time.Second)
				time.Sleep(time.Second) // the request ends, and is sent again
				b.standStill(2 * time.Minute)
				l.expire()
				b.isLost(l, test.cause)
				time.Sleep(10 * time.Minute)
			})
		})
	}
}

// Nor is it for one failure long before the end of the lease.
func TestFailureBeforeAStandstill(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		l := b.grant(Spec{Key: "k", TTL: 10 * time.Minute})
		b.awaitRequest0()
		b.standStill(10 * time.Minute)
		l.expire()
		require.NoError(b, b.isLost(l, Expired).Err)
	})
}

// A store that failed until the end of the lease is to blame, however late the process is.
func TestFailuresUntilTheEndAreTheStores(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.mute = true })
		l := b.grant(Spec{Key: "k"})
		time.Sleep(time.Until(l.Until()) - time.Second)
		b.standStill(time.Minute)
		l.expire()
		b.isLost(l, Unreachable)
	})
}

// A request returns as its limit passes, and its end is handled first.
func TestLimitAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		dog, err := assemble(s, Config{}, new(clock))
		require.NoError(t, err)
		b := &bench{t, s, dog}
		b.grant(Spec{Key: "k"})
		time.Sleep(10*time.Second + tick)
		dog.mu.Lock()
		dog.collectDue()
		request := dog.dispatch(dog.clock.now())
		dog.mu.Unlock()
		require.NoError(t, dog.callRenew(request))
		require.Nil(t, dog.complete(request, nil))
		dog.timeOut(request, context.DeadlineExceeded)
		require.Zero(t, request.lane.hanging, "a later loss by a standstill is blamed on the store")
		require.Nil(t, request.lane.fault)
		go dog.run()
		b.close()
	})
}
