package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type requestKey struct{}

// A request's context has the deadline and the values of a standard one, and ends like
// it, with or without a call of Done.
func TestRequestContextIsAContextWithDeadline(t *testing.T) {
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), requestKey{}, "value"))
			by := time.Now().Add(time.Second)
			open := func() (context.Context, context.CancelFunc) {
				ctx, cancel := withDeadline(parent, by)
				if watched {
					ctx.Done()
				}
				return ctx, cancel
			}
			cancelled, cancel := open()
			expired, cancelLate := open()
			cancelParent()
			deadline, ok := expired.Deadline()
			require.True(t, ok && deadline.Equal(by))
			require.Equal(t, "value", expired.Value(requestKey{}))
			require.NoError(t, expired.Err(), "the parent's cancellation does not reach it")

			cancel()
			require.ErrorIs(t, cancelled.Err(), context.Canceled)
			<-cancelled.Done()
			require.ErrorIs(t, context.Cause(cancelled), context.Canceled)

			child, cancelChild := context.WithCancel(expired)
			defer cancelChild()
			time.Sleep(time.Second)
			synctest.Wait()
			cancelLate()
			require.ErrorIs(t, expired.Err(), context.DeadlineExceeded)
			require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
			<-expired.Done()
			cancelled.Done()
			require.ErrorIs(t, cancelled.Err(), context.Canceled)
		})
	}
}
