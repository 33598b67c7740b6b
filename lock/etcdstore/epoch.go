package etcdstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// knownEpoch is what the tokens of a prefix begin with: the clock, in µs, as its first store read it; 0: not
// known yet. Tokens are this and a revision, so that they grow although a cluster is made anew. Requests compare
// it by its value: the first store of each new cluster may write it at the same revision.
func (e *etcd) knownEpoch() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

// setEpoch takes what the key of the epoch has, and returns it. From another program's value tokens would begin anew, and
// revisions could overflow a large one.
func (e *etcd) setEpoch(value []byte) (base int64, err error) {
	base, err = strconv.ParseInt(string(value), 10, 64)
	if err != nil || base <= 0 || base > math.MaxInt64/2 || string(value) != epochValue(base) {
		return 0, fmt.Errorf("the key %s has %.40q, which is not of leasewheel: delete it: %w", e.keys.epoch(), value, driver.ErrForeign)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch != 0 && e.epoch != base {
		e.endWatches()
		e.anew, e.endWatches = context.WithCancel(context.Background())
	}
	e.epoch = base
	return base, nil
}

// epochValue is what the key of an epoch has.
func epochValue(base int64) string { return strconv.FormatInt(base, 10) }

// sawEpoch takes the epoch that a keepalive has read: a store that only holds and waits writes nothing, and
// its watches would wait for revisions of before a restore. An error is that of its next request.
func (e *etcd) sawEpoch(kv *mvccpb.KeyValue) {
	e.setEpoch(kv.Value) //nolint:errcheck // see above
}

// openEpoch reads the epoch, or begins it, and returns it. It reads as many keys as renewals do in a transaction, so
// that servers which accept fewer are found now.
func (e *etcd) openEpoch(ctx context.Context) (base int64, err error) {
	key := e.keys.epoch()
	now := epochValue(e.now().UnixMicro())
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", 0)}
	response, err := e.transact(ctx, absent, []clientv3.Op{clientv3.OpPut(key, now)}, slices.Repeat([]clientv3.Op{clientv3.OpGet(key)}, maxOps))
	if err != nil {
		return 0, err
	}
	if response.Succeeded {
		return e.setEpoch([]byte(now))
	} else if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		return e.setEpoch(kvs[0].Value)
	}
	return 0, nil
}
