package drivertest

import (
	"errors"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// restarting returns the test for a backend with Restart.
func restarting(f func(*bench)) func(*bench) {
	return alone("Restart", func(b Backend) bool { return b.Restart != nil }, f)
}

// answers sends a request until the store answers, after a restart.
func (b *bench) answers(send func() error) {
	b.Helper()
	err := send()
	for begin := time.Now(); errors.Is(err, lock.ErrUnavailable) && time.Since(begin) < soon; err = send() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		b.Fatalf("after a restart: %v", err)
	}
}

// acquired is the answer of a store that was restarted.
func (b *bench) acquired(s driver.Store, h *driver.Hold) (answer driver.Answer) {
	b.Helper()
	b.answers(func() (err error) {
		answer, err = s.Acquire(b.Context(), h)
		return err
	})
	return answer
}

// renewed is the outcome of a renewal at a store that was restarted.
func (b *bench) renewed(s driver.Store, h *driver.Hold) renewal.Outcome {
	b.Helper()
	items := renewals(h)
	b.answers(func() error {
		items[0].Outcome, items[0].Err = renewal.Unknown, nil
		s.Renew(b.Context(), items)
		if items[0].Outcome != renewal.Unknown {
			return nil // the error gives the reason
		}
		return items[0].Err
	})
	return items[0].Outcome
}

// A store whose servers have lost their data knows no hold, and grants with larger tokens.
func grantsAnewOnceItsDataAreLost(b *bench) {
	mine, theirs := b.store(), b.store()
	first := b.granted(mine, b.hold("a", "me:1"))
	woken, sub := b.listen(theirs, "a")
	defer sub.Close()
	b.Restart(false)
	if outcome := b.renewed(mine, b.hold("a", "me:1")); outcome != renewal.Gone {
		b.Errorf("a hold that the restart has lost is renewed: %v", outcome)
	}
	next := b.acquired(theirs, b.hold("a", "you:1"))
	if next.Verdict != driver.Granted || !b.follows(next.Token, first.Token) {
		b.Errorf("after token %d and a loss of data: %+v", first.Token, next)
	}
	b.wakes(woken, "a gap in which messages may have been missed")
}

// A store whose servers have kept their data keeps its holds and its tokens.
func keepsItsHoldsThroughARestart(b *bench) {
	mine, theirs := b.store(), b.store()
	first := b.granted(mine, b.hold("a", "me:1"))
	b.Restart(true)
	if answer := b.acquired(theirs, b.hold("a", "you:1")); answer.Verdict != driver.Refused {
		b.Fatalf("a hold from before the restart has not kept others out: %+v", answer)
	}
	if outcome := b.renewed(mine, b.hold("a", "me:1")); outcome != renewal.Renewed {
		b.Errorf("renewal of a hold from before the restart: %v", outcome)
	}
	b.release(mine, b.holding("a", "me:1", 0), true)
	if next := b.granted(theirs, b.hold("a", "you:1")); !b.follows(next.Token, first.Token) {
		b.Errorf("token %d came after %d", next.Token, first.Token)
	}
}

// stepping returns the test for a backend with StepClock.
func stepping(f func(*bench)) func(*bench) {
	return alone("StepClock", func(b Backend) bool { return b.StepClock != nil }, f)
}

// Tokens grow also when the servers' clocks are set back.
func tokensGrowWhenClocksAreSetBack(b *bench) {
	s := b.store()
	first := b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.StepClock(-time.Hour)
	next := b.acquired(s, b.hold("a", "me:2"))
	if next.Verdict != driver.Granted || !b.follows(next.Token, first.Token) {
		b.Errorf("after token %d and a clock that was set back: %+v", first.Token, next)
	}
}
