package elect_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// The process ends once the leadership is lost and the grace is over, and says why. An outage
// that is shorter than the lease ends nothing.
func TestFailStop(t *testing.T) {
	for name, grace := range map[string]time.Duration{"WithAGrace": 5 * time.Second, "AtOnce": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				e := elect.New(server.Locker(t, lock.Config{TTL: 30 * time.Second}), "leader", lock.Options{}).FailStop(grace)
				reasons := make(chan string, 1)
				var ended time.Time
				e.OnFailStop(func(reason string) {
					ended = time.Now()
					assert.False(t, e.IsLeader())
					reasons <- reason
				})
				hang := make(chan struct{})
				result := run(t.Context(), e, func(context.Context, int64) error { <-hang; return errWork })
				leads, _, err := e.Await(t.Context())
				require.NoError(t, err)
				server.Disconnect()
				time.Sleep(15 * time.Second)
				server.Reconnect()
				time.Sleep(time.Hour)
				require.Empty(t, reasons)
				require.True(t, e.IsLeader())
				_, err = e.Leader(t.Context())
				require.NoError(t, err)

				server.Disconnect()
				<-leads.Done()
				lost := time.Now()
				reason := <-reasons
				assert.Equal(t, grace, ended.Sub(lost))
				assert.Regexp(t, `^elect: the leadership of "leader", term \d+, is lost, and its function has not returned within `+grace.String()+`: Election\.FailStop ends the process: .*lost`, reason)
				server.Reconnect()
				close(hang) // the replaced exit has returned
				require.Equal(t, errWork, <-result)
			})
		})
	}
}

// A function that returns in time, or whose leadership is not lost, leaves the process alone,
// however long it takes.
func TestFailStopLeavesTheProcessAlone(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, l *lock.Locker, stop func())
		lead func(ctx context.Context) error
		lost bool
	}{
		"ReturnsInTime": {forceRelease, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(4 * time.Second)
			return ctx.Err()
		}, true},
		"Shutdown": {func(_ *testing.T, _ *lock.Locker, stop func()) { stop() }, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return ctx.Err()
		}, false},
		"Resigns": {func(*testing.T, *lock.Locker, func()) {}, func(context.Context) error {
			time.Sleep(time.Hour)
			return errWork
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locktest.New(t, lock.Config{})
				e := elect.New(l, "leader", lock.Options{}).FailStop(5 * time.Second)
				e.OnFailStop(func(reason string) { t.Errorf("the process ends: %s", reason) })
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				result := run(ctx, e, func(ctx context.Context, _ int64) error { return test.lead(ctx) })
				leads, _, err := e.Await(t.Context())
				require.NoError(t, err)
				test.end(t, l, stop)
				<-leads.Done()
				assert.Equal(t, test.lost, context.Cause(leads) != lock.ErrReleased) //nolint:errorlint // this value itself
				time.Sleep(time.Hour)
				stop()
				require.Error(t, <-result)
			})
		})
	}
	require.Panics(t, func() { elect.New(locktest.New(t, lock.Config{}), "leader", lock.Options{}).FailStop(-1) })
}

// forceRelease takes the leadership away.
func forceRelease(t *testing.T, l *lock.Locker, _ func()) {
	_, err := l.ForceRelease(t.Context(), "leader")
	require.NoError(t, err)
}

// The close of the locker is a loss: its lease ends in the store, whatever the function does.
func TestFailStopAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{})
		e := elect.New(l, "leader", lock.Options{}).FailStop(time.Second)
		reasons := make(chan string, 1)
		e.OnFailStop(func(reason string) { reasons <- reason })
		hang := make(chan struct{})
		result := run(t.Context(), e, func(context.Context, int64) error { <-hang; return errWork })
		_, _, err := e.Await(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.Contains(t, <-reasons, "closed")
		close(hang)
		require.ErrorIs(t, <-result, lock.ErrClosed)
	})
}

// A panic of the leader's function is its end, too.
func TestFailStopAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{})
		e := elect.New(l, "leader", lock.Options{}).FailStop(time.Second)
		e.OnFailStop(func(reason string) { t.Errorf("the process ends: %s", reason) })
		require.PanicsWithValue(t, "it fails", func() {
			_ = e.Run(t.Context(), func(context.Context, int64) error {
				forceRelease(t, l, nil)
				panic("it fails")
			})
		})
		time.Sleep(time.Minute)
		require.False(t, e.IsLeader())
	})
}
