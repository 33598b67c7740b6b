package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// withheld keeps the first write of a record on its way, from when of is set: its caller gets no answer.
type withheld struct {
	of      atomic.Pointer[string] // the record's key
	request *pb.TxnRequest
}

func (w *withheld) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		txn, _ := request.(*pb.TxnRequest)
		for _, op := range txn.GetSuccess() {
			if key := w.of.Load(); key != nil && string(op.GetRequestPut().GetKey()) == *key && w.of.CompareAndSwap(key, nil) {
				w.request = txn
				return context.DeadlineExceeded
			}
		}
		return invoke(ctx, called, request, reply, conn, options...)
	})
}

// withhold returns a store whose next write of the record of "a" is withheld, once the function is called.
func withhold(t *testing.T, prefix string) (s *Store, w *withheld, begin func()) {
	w = new(withheld)
	s = openOn(t, common(t).dial(t, w.option()), prefix)
	return s, w, func() { w.of.Store(new(s.keys.lock("a"))) }
}

// arrive has the request arrive, and reports whether it was applied.
func (w *withheld) arrive(t *testing.T) bool {
	t.Helper()
	require.NotNil(t, w.request, "nothing was withheld")
	var response *pb.TxnResponse
	repeated(t, func() (err error) {
		if response, err = pb.NewKVClient(common(t).dial(t).ActiveConnection()).Txn(t.Context(), w.request); err != nil {
			err = failed(err)
		}
		return err
	})
	return response.Succeeded
}

// A hold does not move to another etcd lease once a renewal has kept the former one alive: what the holder was
// promised is the end of that.
func TestMoveThatArrivesLate(t *testing.T) {
	t.Parallel()
	for what, step := range map[string]func(s *Store, h *driver.Hold) error{
		"a renewal": func(s *Store, h *driver.Hold) error {
			items := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
			s.Renew(context.Background(), items)
			return items[0].Err
		},
		"a further hold": func(s *Store, h *driver.Hold) error {
			h.Count = 2
			_, err := s.Acquire(context.Background(), h)
			return err
		},
		"a release of one of two holds": func(s *Store, h *driver.Hold) error {
			_, err := s.Release(context.Background(), h)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testLateMove(t, step)
		})
	}
}

func testLateMove(t *testing.T, step func(s *Store, h *driver.Hold) error) {
	const ttl = time.Hour
	s, late, begin := withhold(t, fmt.Sprintf("test/%d", prefixes.Add(1)))
	var clock atomic.Int64
	s.clock = func() time.Duration { return time.Duration(clock.Load()) }
	renew := func(names ...string) (items []renewal.Item) {
		for _, name := range names {
			items = append(items, renewal.Item{Key: name, Owner: "me:" + name, Ref: driver.KindMutex, TTL: ttl})
		}
		s.Renew(t.Context(), items)
		return items
	}
	for _, name := range []string{"a", "b"} {
		h := request("me:"+name, ttl)
		h.Name = name
		acquire(t, s, h)
	}
	h := request("me:a", ttl)
	h.Count = 2
	acquire(t, s, h)
	h.Count = 1
	shared := leaseOf(t, s, "a", "me:a")
	require.Equal(t, shared, leaseOf(t, s, "b", "me:b"))
	clock.Add(int64(ttl/2 + time.Second)) // the other hold was not renewed for so long
	begin()
	err := step(s, h)
	require.Error(t, err)
	require.NotErrorIs(t, err, driver.ErrNotDone)
	clock.Add(int64(ttl / 10))
	for _, item := range renew("a", "b") {
		require.NoError(t, item.Err)
		require.Equal(t, renewal.Renewed, item.Outcome)
	}
	assert.False(t, late.arrive(t), "broken promise: the hold moved to an etcd lease that ends earlier")
	for _, item := range renew("a", "b") {
		assert.Equal(t, renewal.Renewed, item.Outcome, item.Err)
		assert.Equal(t, ttl, item.Given, "one keepalive serves it again")
	}
}

// A place in the queue of a mutex that is requested late, after the release of its owner was confirmed, is none.
func TestPlaceThatArrivesLate(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s, late, begin := withhold(t, strings.TrimSuffix(holder.keys.prefix, "//"))
	acquire(t, holder, request("00000001-0000-4000-8000-000000000000:1", time.Hour))
	waiter := request("00000002-0000-4000-8000-000000000000:1", time.Hour)
	waiter.Queue.Subscribed = true
	sub := subscribe(t, s, waiter, func(driver.Notice) {})
	defer sub.Close()
	begin()
	_, err := s.Acquire(t.Context(), waiter)
	require.NotErrorIs(t, err, driver.ErrNotDone)
	waiter.Count = 0
	held := release(t, s, waiter)
	require.False(t, held)
	assert.False(t, late.arrive(t), "broken promise: a confirmed release leaves nothing")
}
