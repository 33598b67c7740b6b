//go:build real

package etcdstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
)

// supported are the kinds that the store supports.
var supported = []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite}

// TestSuite runs the conformance suite on a cluster of three members.
func TestSuite(t *testing.T) {
	t.Parallel()
	c := startCluster(t, swift, nil)
	drivertest.Run(t, drivertest.Suite{
		Backend: func(t testing.TB) drivertest.Backend { return backend(t, c) },
		Own:     func(t testing.TB) drivertest.Backend { return backend(t, startCluster(t, swift, nil)) },
		Kinds:   supported, Step: time.Second, Unclocked: true,
	})
}

// backend returns a backend on a cluster, with a prefix of its own.
func backend(t testing.TB, c *cluster) drivertest.Backend {
	prefix := fmt.Sprintf("test/%d", prefixes.Add(1))
	var set atomic.Int64 // by how much the clocks are set
	open := func(t testing.TB, client *clientv3.Client) *Store {
		s := openOn(t, client, prefix)
		s.now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		return s
	}
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Store { return open(t, c.dial(t)) },
		Delete: func(name string) {
			k, err := newKeys(prefix)
			require.NoError(t, err)
			_, err = c.dial(t).Delete(context.Background(), k.lock(name))
			require.NoError(t, err)
		},
		Kill: func(t testing.TB) (driver.Store, func()) {
			client := c.dial(t)
			return open(t, client), func() { _ = client.Close() }
		},
		Late: func(t testing.TB) drivertest.LateStore {
			w := new(drivertest.Way)
			return w.To(open(t, c.dial(t, grpc.WithUnaryInterceptor(late(w)))))
		},
		Restart: func(data bool) {
			for _, m := range c.members {
				m.kill()
			}
			for _, m := range c.members {
				if !data {
					m.lose(t)
				}
				m.start(t)
			}
			c.await(t)
		},
		StepClock: func(d time.Duration) { set.Add(int64(d)) },
	}
}

// late sends each request once it may arrive, also for a caller that has given up.
func late(w *drivertest.Way) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		done := make(chan error, 1)
		go func() {
			w.Travel()
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			done <- invoke(bounded, method, request, reply, conn, options...)
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
