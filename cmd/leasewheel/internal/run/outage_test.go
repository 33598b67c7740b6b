//go:build unix

package run

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// breaks are the ways of an outage, and its end.
var breaks = map[string][2]func(*locktest.Server){
	"dead": {(*locktest.Server).Disconnect, (*locktest.Server).Reconnect},
	"mute": {(*locktest.Server).Freeze, (*locktest.Server).Thaw},
}

// inOutage runs f on a server in virtual time, with a request of run's.
func inOutage(t *testing.T, f func(t *testing.T, server *locktest.Server, r *command, request func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := locktest.Start(t)
		store, err := redisstore.New(s.Client(t), redisstore.Config{})
		require.NoError(t, err)
		defer store.Close()
		locker, err := lock.New(store, lock.Config{RetryFor: driver.DefaultRequestTimeout})
		require.NoError(t, err)
		defer locker.Close()
		r := &command{name: "job", verbose: true, stderr: new(strings.Builder)}
		r.servers = connect.Servers{{Client: s.Client(t), Store: store, Address: "of the test"}}
		f(t, s, r, func() error {
			lease, err := r.request(t.Context(), r.kinds.acquirer(locker, r.name, lock.Options{}))
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			return err
		})
		s.Thaw()
		s.Reconnect()
	})
}

// An outage of the server that is shorter than the wait is part of the wait: before the
// lock is requested, and while run waits for it.
func TestRunWaitsThroughAnOutage(t *testing.T) {
	t.Parallel()
	const long = 2 * time.Minute
	for limit, wait := range map[string]time.Duration{"for a time": time.Hour, "for ever": 0} {
		for name, server := range breaks {
			t.Run(name+" at first, "+limit, func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *locktest.Server, r *command, request func() error) {
					r.wait = duration.Flag(wait)
					begin := time.Now()
					server[0](s)
					time.AfterFunc(long, func() { server[1](s) })
					require.NoError(t, request())
					assert.InDelta(t, long, time.Since(begin), float64(mostOutagePause+driver.DefaultRequestTimeout))
					assert.Equal(t, 1, strings.Count(fmt.Sprint(r.stderr), "; waiting for it"), r.stderr)
				})
			})
			t.Run(name+" while waiting, "+limit, func(t *testing.T) {
				inOutage(t, func(t *testing.T, s *locktest.Server, r *command, request func() error) {
					r.wait = duration.Flag(wait)
					client := s.Client(t)
					require.NoError(t, client.HSet(t.Context(), "job", "285475da-9152-4c83-822a-67ee2f116a79:1", 1).Err())
					require.NoError(t, client.PExpire(t.Context(), "job", long*3/2).Err())
					begin := time.Now()
					time.AfterFunc(20*time.Second, func() { server[0](s) })
					time.AfterFunc(long, func() { server[1](s) })
					require.NoError(t, request())
					assert.InDelta(t, long*3/2, time.Since(begin), float64(10*time.Second), "the holder's lease has ended")
				})
			})
		}
	}
}

// An outage that lasts is reported once, and is not a conflict when the wait is over.
func TestRunGivesUpAfterItsWait(t *testing.T) {
	t.Parallel()
	for name, server := range breaks {
		t.Run(name, func(t *testing.T) {
			inOutage(t, func(t *testing.T, s *locktest.Server, r *command, request func() error) {
				const wait = 20 * time.Second
				r.wait = duration.Flag(wait)
				server[0](s)
				begin := time.Now()
				err := r.refused(t.Context(), request())
				failed, ok := errors.AsType[*exit.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, exit.Unavailable, failed.Code)
				assert.InDelta(t, wait, time.Since(begin), float64(driver.DefaultRequestTimeout+mostOutagePause))
				assert.Equal(t, 1, strings.Count(fmt.Sprint(r.stderr), "; waiting for it"), r.stderr)
			})
		})
	}
}
