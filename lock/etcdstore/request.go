package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// etcd is the cluster as the stores of a prefix use it: requests, watches, and what tokens begin with.
type etcd struct {
	client *clientv3.Client
	keys   keys
	now    func() time.Time // of epochs, of places in queues, and of what blocks readers

	mu         sync.Mutex         // guards what follows
	epoch      int64              // see knownEpoch
	anew       context.Context    // ends when the cluster has begun anew
	endWatches context.CancelFunc // of anew
	stream     *stream            // of the watches that begin
}

const (
	// maxOps is how many operations etcd accepts in a transaction by default.
	maxOps = 128
	// leaderPause is the pause before a request is sent to another member.
	leaderPause = 5 * time.Millisecond
)

// somewhere sends a request until a member accepts it, see elsewhere: one without a leader refuses it at once. The
// last one may end with its time alone: its error has the text of the refusal before, and not its class, as that
// request may have been applied.
func somewhere[T any](ctx context.Context, send func(context.Context) (T, error)) (reply T, err error) {
	ctx = clientv3.WithRequireLeader(ctx)
	for refusal := error(nil); ; backoff.Sleep(ctx, leaderPause) {
		reply, err = send(ctx)
		switch {
		case elsewhere(err) && ctx.Err() == nil:
			refusal = err
			continue
		case refusal != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			err = fmt.Errorf("%w, after the members' refusal: %v", err, refusal) //nolint:errorlint // see above
		}
		return reply, err
	}
}

// transact makes a transaction.
func (e *etcd) transact(ctx context.Context, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	return somewhere(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	})
}

// get reads keys.
func (e *etcd) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return somewhere(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, key, options...) })
}

// put stores a key.
func (e *etcd) put(ctx context.Context, key, value string, l clientv3.LeaseID) (*clientv3.PutResponse, error) {
	return somewhere(ctx, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return e.client.Put(ctx, key, value, clientv3.WithLease(l))
	})
}

// grant has an etcd lease granted, for a TTL rounded up.
func (e *etcd) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	return somewhere(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return e.client.Grant(ctx, seconds) })
}

// read reads the record of a name.
func (e *etcd) read(ctx context.Context, name string) (v version, err error) {
	v.epoch = e.knownEpoch()
	response, err := e.get(ctx, e.keys.lock(name))
	if err == nil && len(response.Kvs) > 0 {
		v.revision, v.value = response.Kvs[0].ModRevision, response.Kvs[0].Value
	}
	return v, err
}

// living reports whether a lease lives, by what its key has. One whose key is gone never comes back. A key
// without a lease was copied from another cluster, or overwritten: nothing would end it. With WithKeysOnly etcd
// 3.7 leaves leases out.
func living(kvs []*mvccpb.KeyValue) bool { return len(kvs) > 0 && kvs[0].Lease != 0 }

// look finds out which leases live.
func (s *Store) look(ctx context.Context, ids []clientv3.LeaseID, life map[clientv3.LeaseID]bool) error {
	at := s.clock()
	for some := range slices.Chunk(ids, maxOps) {
		ops := make([]clientv3.Op, len(some))
		for i, id := range some {
			ops[i] = clientv3.OpGet(s.keys.lease(id))
		}
		response, err := s.transact(ctx, nil, ops, nil)
		if err != nil {
			return err
		}
		for i, id := range some {
			life[id] = living(response.Responses[i].GetResponseRange().Kvs)
			if l := s.leases.own(id); l != nil && !life[id] {
				s.leases.ended(l)
			}
		}
	}
	s.saw(ids, life, at)
	return nil
}

// begin is called before each request.
func (s *Store) begin(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	if s.knownEpoch() != 0 {
		return nil
	}
	if _, err := s.openEpoch(ctx); err != nil {
		return unsent(err)
	}
	return nil
}

// bound returns a context that ends with the store, too.
func (s *Store) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
