package lock

import (
	"testing"

	"github.com/leasewheel/leasewheel/renewal"
)

// lostHolding is the hold of a lock that is lost.
type lostHolding struct{ holding }

func (lostHolding) state() state { return lostState{} }

type lostState struct{ state }

func (lostState) Err() error { return &LostError{Cause: renewal.Deleted} }

// A receiver from Lost finds the context ended, as with a lease of one lock.
func TestLostOfSeveralAfterTheContext(t *testing.T) {
	ended := false
	l := &together{lost: make(chan struct{})}
	l.end = func(error) {
		select {
		case <-l.lost:
			t.Error("Lost is closed before the context ends")
		default:
			ended = true
		}
	}
	l.note(&Lease{holding: lostHolding{}})
	<-l.lost
	if !ended {
		t.Error("the context has not ended")
	}
}
