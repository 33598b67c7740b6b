package lock

import (
	"context"
	"testing"
)

// ending is a context that ends as soon as it is waited for, after something else.
type ending struct {
	context.Context
	first func()
}

func (e ending) Done() <-chan struct{} {
	e.first()
	done := make(chan struct{})
	close(done)
	return done
}

// Operations that end at the instant at which the context does have ended in time.
func TestActivityEndsWithTheContext(t *testing.T) {
	for range 30 { // a select would choose at random
		var a activity
		a.begin()
		if !a.wait(ending{t.Context(), a.end}) {
			t.Fatal("nothing is in progress any more")
		}
	}
}
