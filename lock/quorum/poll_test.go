package quorum

import (
	"context"
	"testing"
)

// Replies that have come by the end of the context count, up to the decision.
func TestRepliesAtTheEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 30 { // a select would choose at random
		p := &poll[int]{replies: make(chan reply[int], 4), late: 4}
		for range 3 {
			p.replies <- reply[int]{}
		}
		seen, decision := 0, 2
		see := func(reply[int]) { seen++ }
		decided := func() bool { return seen == decision }
		if p.gather(ctx, see, decided); seen != 2 || p.late != 2 {
			t.Fatalf("%d of three replies count before the decision, which is by two", seen)
		}
		decision = 4
		if p.gather(ctx, see, decided); seen != 3 || p.late != 1 {
			t.Fatalf("%d of three replies count", seen)
		}
	}
}
