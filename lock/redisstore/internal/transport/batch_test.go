package transport

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
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

func (ending) Err() error { return context.Canceled }

// A reply that has come by the end of the context counts: it may have granted a lock.
func TestReplyAtTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	for range 30 { // a select would choose at random
		q := &queue{inFlight: MaxInFlight}
		answer := func() {
			for _, r := range q.next() {
				r.reply = "granted"
				close(r.done)
			}
		}
		reply, err := q.run(&request{ctx: ending{t.Context(), answer}})
		require.NoError(t, err)
		require.Equal(t, "granted", reply)
	}
}
