package lock

import (
	"context"
	"runtime"
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
			time.Sleep(time.Second - time.Nanosecond)
			synctest.Wait()
			require.NoError(t, expired.Err())
			require.NoError(t, child.Err())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.ErrorIs(t, expired.Err(), context.DeadlineExceeded)
			require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
			require.ErrorIs(t, context.Cause(child), context.DeadlineExceeded)
			cancelLate()
			require.ErrorIs(t, expired.Err(), context.DeadlineExceeded)
			<-expired.Done()
			cancelled.Done()
			require.ErrorIs(t, cancelled.Err(), context.Canceled)
		})
	}
}

// A deadline that is over ends the context by the first call of Done, not soon after it.
func TestRequestContextThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, cancel := withDeadline(t.Context(), time.Now())
		defer cancel()
		select {
		case <-late.Done():
		default:
			t.Fatal("it has not ended")
		}
		require.ErrorIs(t, late.Err(), context.DeadlineExceeded)
	})
}

// Reading a value of a request's context, as hooks and loggers do, makes no standard context,
// and its cause is not the parent's.
func TestRequestContextReadsValues(t *testing.T) {
	parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), requestKey{}, "value"))
	cancelParent()
	request, cancel := withDeadline(parent, time.Now().Add(time.Hour))
	defer cancel()
	require.Equal(t, "value", request.Value(requestKey{}))
	require.NoError(t, context.Cause(request))
	require.Nil(t, request.(*requestContext).ctx) //nolint:forcetypeassert // it is made above
}

// Children of a request's context end with it, and cost no goroutine until then: one each
// is what package context starts for a context of another kind.
func TestRequestContextEndsItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request, cancel := withDeadline(t.Context(), time.Now().Add(time.Second))
		before := runtime.NumGoroutine()
		derive := func() context.Context {
			child, stop := context.WithTimeout(request, time.Hour)
			t.Cleanup(stop)
			return child
		}
		var children []context.Context
		for range 10 {
			children = append(children, derive())
		}
		called := make(chan error, 2)
		context.AfterFunc(request, func() { called <- request.Err() })
		unwanted := context.AfterFunc(request, func() { called <- nil })
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine(), before+len(children)/2) // one of an earlier test may have ended
		require.True(t, unwanted(), "the function was stopped in time")

		cancel()
		synctest.Wait()
		for _, child := range children {
			require.ErrorIs(t, child.Err(), context.Canceled)
		}
		require.ErrorIs(t, <-called, context.Canceled)
		require.Empty(t, called)

		late := derive()
		synctest.Wait()
		require.ErrorIs(t, late.Err(), context.Canceled)
	})
}
