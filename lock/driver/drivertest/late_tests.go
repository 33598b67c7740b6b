package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// This file checks that requests which reach the store late change nothing.

// late returns the test for a backend with Late.
func late(f func(*bench)) func(*bench) {
	return needing("Late", func(b Backend) bool { return b.Late != nil }, f)
}

// inTime is how long a late request has until its deadline.
const inTime = 500 * time.Millisecond

// settled is how long a request takes that has reached the store.
const settled = 100 * time.Millisecond

// arrivesLate sends a request of which all messages after the first few are kept until it can
// no longer be applied. They are delivered after a call of meanwhile, whose requests arrive. It returns false if the
// request had no further messages.
func (b *bench) arrivesLate(on LateStore, arrive int, send func(ctx context.Context), meanwhile func()) (late bool) {
	b.Helper()
	deadline := time.Now().Add(inTime)
	ctx, cancel := context.WithDeadline(b.Context(), deadline)
	defer cancel()
	sent := make(chan struct{})
	on.Hold(arrive)
	go func() {
		defer close(sent)
		send(ctx)
	}()
	time.Sleep(time.Until(deadline.Add(driver.MaxLateness + 50*time.Millisecond)))
	on.Pass()
	meanwhile()
	late = on.Deliver() > 0
	<-sent
	time.Sleep(settled)
	return late
}

// lateAsAWhole is arrivesLate for a request of which nothing arrives in time.
func (b *bench) lateAsAWhole(on LateStore, send func(ctx context.Context)) {
	b.Helper()
	for begin := time.Now(); !b.arrivesLate(on, 0, send, func() {}); { // a busy machine has not sent it in time
		if time.Since(begin) > soon {
			b.Fatal("the request was not sent, or Hold has not kept it")
		}
	}
}

// lateStore returns a store whose connections are made.
func (b *bench) lateStore() LateStore {
	b.Helper()
	on := b.Late(b.T)
	b.granted(on.Store, b.hold("warm up", "me:1"))
	return on
}

// An acquisition that arrives later than driver.MaxLateness after its deadline takes nothing.
func grantsNothingLate(b *bench) {
	on, other := b.lateStore(), b.store()
	b.lateAsAWhole(on, func(ctx context.Context) { _, _ = on.Acquire(ctx, b.hold("a", "late:1")) })
	if b.suite.Unclocked {
		if _, err := on.Release(b.Context(), b.holding("a", "late:1", 0)); err != nil {
			b.Fatalf("release what arrived late: %v", err)
		}
	}
	b.granted(other, b.hold("a", "you:1"))
}

// A renewal that arrives late prolongs nothing.
func renewsNothingLate(b *bench) {
	on, other := b.lateStore(), b.store()
	h := lasting(b.hold("a", "late:1"), 2*ttl) // it ends after the renewal has arrived
	b.granted(other, h)
	end := time.Now().Add(b.over(h.TTL))
	b.lateAsAWhole(on, func(ctx context.Context) { on.Renew(ctx, renewals(b.hold("a", "late:1"))) })
	time.Sleep(time.Until(end))
	b.granted(other, b.hold("a", "you:1"))
}

// mostMessages is how many messages a request has at most: those of a connection that is made,
// and the parts of a transaction.
const mostMessages = 20

// A release that is sent when an acquisition can no longer be applied, and is confirmed,
// leaves nothing of the acquisition, also if it finds nothing: the store may have begun to
// apply the acquisition. So all of its messages are late, then all but the first, and so on.
func releasesWhatIsUnderWay(b *bench) {
	on, other := b.lateStore(), b.store()
	for arrive := range mostMessages {
		name, confirmed := fmt.Sprintf("a %d", arrive), make(chan error, 1)
		late := b.arrivesLate(on, arrive, func(ctx context.Context) {
			_, _ = on.Acquire(ctx, b.hold(name, "late:1"))
		}, func() {
			go func() {
				ctx, cancel := context.WithTimeout(b.Context(), soon)
				defer cancel()
				_, err := on.Release(ctx, b.holding(name, "late:1", 0))
				confirmed <- err
			}()
			time.Sleep(settled) // it has returned, unless it waits for the acquisition
		})
		if err := <-confirmed; err != nil {
			b.Fatalf("release %q: %v", name, err)
		}
		b.granted(other, b.hold(name, "you:1"))
		if !late {
			return
		}
	}
	b.Errorf("a request has more than %d messages", mostMessages)
}

// The permits of a semaphore are neither taken nor added late.
func countsNothingLate(b *bench) {
	on, other := b.Late(b.T), b.store()
	b.count(on.Store, "warm up", "set:1", driver.CountCreate, 1, done(1))
	b.count(other, "a", "set:2", driver.CountCreate, 3, done(3))
	b.lateAsAWhole(on, func(ctx context.Context) { _, _ = on.Acquire(ctx, b.permits("a", "late:1", 1)) })
	b.stands(other, "a", 3)
	b.lateAsAWhole(on, func(ctx context.Context) {
		_, _ = on.Store.(driver.Counter).Count(ctx, &driver.Count{
			Kind: b.kind, Name: b.name("a"), Op: driver.CountAdd, N: 2, Request: "add:1", Keep: time.Hour,
		})
	})
	b.stands(other, "a", 3)
}
