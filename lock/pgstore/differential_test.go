package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/lock/internal/machine/machinetest"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// The functions and the rows mean what the machine means, on a schema whose clock stands still at
// chosen instants.
func TestFunctionsMeanWhatTheMachineMeans(t *testing.T) {
	t.Parallel()
	machinetest.Run(t, func(t *testing.T) *machinetest.Side { return newArena(t).side() })
}

// arena is a schema whose clock is chosen, and stores on it.
type arena struct {
	t      *testing.T
	schema string
	start  time.Time
	admin  *pgxpool.Pool
	stores []*contestant
}

// contestant is one client's store.
type contestant struct {
	*pgstore.Store
	marked chan struct{}
}

// markerOf is the name of a latch, on which a client is notified of nothing but markers.
func markerOf(client int) *driver.Hold {
	return &driver.Hold{Kind: driver.KindLatch, Name: fmt.Sprint("marker:", client)}
}

func newArena(t *testing.T) *arena {
	s := server(t)
	a := &arena{t: t, schema: fmt.Sprintf("arena_%d", prefixes.Add(1)), start: time.Now().Truncate(time.Second), admin: s.Pool(t)}
	migrate(t, s, a.schema)
	exec(t, s, fmt.Sprintf(`CREATE TABLE %[1]s.stopped (at bigint);
		INSERT INTO %[1]s.stopped VALUES (%[2]d);
		CREATE OR REPLACE FUNCTION %[1]s.clock() RETURNS bigint LANGUAGE sql AS 'SELECT at FROM %[1]s.stopped'`, a.schema, a.start.UnixMicro()))
	for i := range machinetest.Clients {
		c := &contestant{open(t, s, pgstore.Config{Schema: a.schema}), make(chan struct{}, 1)}
		_, err := c.Subscribe(t.Context(), markerOf(i), func(driver.Notice) {
			select {
			case c.marked <- struct{}{}:
			default: // a further one, after a gap
			}
		})
		require.NoError(t, err)
		a.stores = append(a.stores, c)
	}
	return a
}

func (a *arena) side() *machinetest.Side {
	s := &machinetest.Side{
		Name: "PostgreSQL", Start: a.start, Merges: true,
		SetClock: func(at time.Time) {
			_, err := a.admin.Exec(a.t.Context(), fmt.Sprintf("UPDATE %s.stopped SET at = $1", a.schema), at.UnixMicro())
			require.NoError(a.t, err)
			for _, store := range a.stores {
				store.SetReading(at)
			}
		},
		Late: func(client int, late bool) {
			if late {
				a.stores[client].SetReading(time.UnixMicro(1))
			}
		},
		Bounded: func(do string, _ driver.Kind) bool { return do != "release" && do != "keep" },
		Flush:   a.flush,
		Settle:  a.settle,
		After:   func(context.Context, string, driver.Kind) {},
	}
	for _, store := range a.stores {
		s.Stores = append(s.Stores, store)
	}
	return s
}

// flush returns when a client has all messages: one behind all others on the same connection
// shows that there are no more.
func (a *arena) flush(ctx context.Context, client int) error {
	store := a.stores[client]
	select {
	case <-store.marked: // of a gap
	default:
	}
	_, err := a.admin.Exec(ctx, fmt.Sprintf(`SELECT pg_notify('leasewheel_' || store, json_build_object('name', name, 'kind', kind)::text)
		FROM %s.waits WHERE name = $1`, a.schema), markerOf(client).Name)
	if err != nil {
		return err
	}
	select {
	case <-store.marked:
		return nil
	case <-ctx.Done():
		return errors.New("the marker does not arrive")
	}
}

// settle returns when the server has the subscriptions that are left.
func (a *arena) settle(ended *driver.Hold, left []machinetest.Subscription) {
	for _, topic := range machine.Topics(ended) {
		clients := make(map[int]bool)
		for _, other := range left {
			for _, t := range machine.Topics(other.Hold) {
				if t == topic {
					clients[other.Client] = true
				}
			}
		}
		require.Eventually(a.t, func() bool {
			var have int
			err := a.admin.QueryRow(context.Background(), fmt.Sprintf(`SELECT count(*) FROM %s.waits WHERE name = $1 AND kind = $2 AND of = $3`, a.schema),
				ended.Name, topic.Kind, topic.Of).Scan(&have)
			return err == nil && have == len(clients)
		}, time.Minute, time.Millisecond)
	}
}
