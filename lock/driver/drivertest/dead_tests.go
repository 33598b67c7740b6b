package drivertest

import (
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// dead returns the test for a backend with Kill.
func dead(f func(*bench)) func(*bench) {
	return needing("Kill", func(b Backend) bool { return b.Kill != nil }, f)
}

// The TTL of a hold runs in the store: no process has to live for its end.
func freesTheDeadAfterTheTTL(b *bench) {
	mine, kill := b.Kill(b.T)
	theirs := b.store()
	b.granted(mine, b.brief("a", "dead:1"))
	end := time.Now().Add(b.over(ttl))
	kill()
	if _, err := mine.Acquire(b.Context(), b.hold("b", "dead:2")); err == nil {
		b.Fatal("Kill has not ended the process: it is granted a lock")
	}
	time.Sleep(time.Until(end))
	b.granted(theirs, b.hold("a", "you:1"))
}

// A release wakes, or grants the lock to, a waiter that lives, also if one that has died
// waited longer.
func skipsDeadWaiters(b *bench) {
	holder, theirs := b.store(), b.store()
	dead, kill := b.Kill(b.T)
	b.granted(holder, b.hold("a", "holder:1"))
	b.queued(dead, b.waiting("a", "dead:1"))
	notices := b.queued(theirs, b.waiting("a", "next:1"))
	kill()
	for len(notices) > 0 { // those of the subscription
		<-notices
	}
	b.release(holder, b.holding("a", "holder:1", 0), true)
	for late := time.After(soon); ; {
		select {
		case n := <-notices:
			answer := b.acquire(theirs, b.waiting("a", "next:1"))
			switch {
			case n.Owner != "" && n.Owner != named("next:1"):
				b.Fatalf("a waiter was notified of a grant to %s", n.Owner)
			case answer.Verdict == driver.Granted:
				return
			case n.Owner != "":
				b.Fatalf("a waiter was notified of its grant, and then got %+v", answer)
			}
			// It was a late one of the subscription.
		case <-late:
			b.Fatal("no waiter that lives was woken")
		}
	}
}

// A waiter to which a release grants the lock has it for its provisional TTL, unless it renews it.
func endsGrantsThatAreNotRenewed(b *bench) {
	if b.suite.Unclocked {
		b.Skip("the grant lasts until its process has died for a TTL")
	}
	holder, theirs := b.store(), b.store()
	b.granted(holder, b.hold("a", "holder:1"))
	gone := b.waiting("a", "gone:1")
	gone.Queue.Provisional = ttl
	notices := b.queued(theirs, gone)
	b.release(holder, b.holding("a", "holder:1", 0), true)
	time.Sleep(b.over(ttl))
	b.granted(holder, b.hold("a", "next:1"))
	for len(notices) > 0 {
		if n := <-notices; n.Owner != "" && n.TTL != ttl {
			b.Errorf("got %+v for a waiter with a provisional TTL of %v", n, ttl)
		}
	}
}

// queued has an owner wait for a mutex, which another owner holds. It returns the notices.
func (b *bench) queued(s driver.Store, h *driver.Hold) <-chan driver.Notice {
	b.Helper()
	notices := make(chan driver.Notice, 100)
	sub, err := s.Subscribe(b.Context(), h, func(n driver.Notice) { notices <- n })
	if err != nil {
		b.Fatalf("subscribe %s: %v", h.Owner, err)
	}
	b.Cleanup(sub.Close)
	b.refused(s, h)
	time.Sleep(time.Millisecond) // in virtual time, the next one is enqueued at another instant
	return notices
}
