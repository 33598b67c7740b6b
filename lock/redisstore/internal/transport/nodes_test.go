package transport

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// The nodes of a cluster change their addresses again and again. Of those that are gone nothing
// stays; of the others what is of use.
func TestNodesThatChangeTheirAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(nil, 0, 0)
		kept := func() (n int) {
			for range tr.kept.Range {
				n++
			}
			return n
		}
		busy := tr.nodeAt("busy:1")
		busy.requests.inFlight = 1
		used := tr.nodeAt("used:1")
		for i := range 1000 {
			used.clock.reading.Store(&Reading{Sent: time.Now()})
			gone := tr.nodeAt(fmt.Sprintf("gone:%d", i))
			gone.clock.reading.Store(&Reading{Sent: time.Now()})
			time.Sleep(readingLife / 2)
		}
		require.LessOrEqual(t, kept(), 4)
		require.Same(t, used, tr.nodeAt("used:1"))
		require.Same(t, busy, tr.nodeAt("busy:1"))
	})
}

// Nodes that were removed from the cluster answer without a master, also before the one that has them.
func TestRemovedNodeEndsNoSearch(t *testing.T) {
	for knowing := range int64(maxAsked) {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				if asked.Add(1) != 1+knowing {
					return nil, nil
				}
				time.Sleep(time.Second)
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			}})
			defer cluster.Close()
			transport := New(cluster, 0, 0)
			defer transport.Close()
			masters, err := transport.Masters(t.Context())
			require.NoError(t, err)
			require.Len(t, masters, 1)
		})
	}
}

// A grant that waits for replicas is not sent while the master of its key is not known.
func TestGrantWithoutAMasterIsNotSent(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return nil, errors.New("no node answers")
	}})
	defer cluster.Close()
	transport := New(cluster, 1, time.Second)
	defer transport.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := transport.Master(ctx, "a")
	require.ErrorIs(t, err, driver.ErrNotDone)
	r := &request{ctx: ctx, Call: &Call{Script: &Script{Text: lua.File("acquire.lua"), Granting: true}, Keys: []any{"a"}}, awaited: true}
	r.cmd = r.command(ctx, &r.by, false)
	transport.exec(ctx, []*request{r})
	require.ErrorIs(t, r.cmd.Err(), driver.ErrNotDone)
}
