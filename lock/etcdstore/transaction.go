package etcdstore

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// transaction is what has become of a step.
type transaction struct {
	done bool // it is stored, or changes nothing
	sent bool // it may be stored, in spite of an error
	read bool // version is what the key has now
	// conflict: it is not stored, as another one was, or a lease has changed
	conflict bool
	version
}

// commit writes a record if it has changed. read reports whether its version was read in this request.
func (s *Store) commit(ctx context.Context, w *work, read bool) (t transaction, err error) {
	if err := w.settle(ctx); err != nil {
		return t, err
	}
	w.granted = w.state.Token() != w.token
	value := machine.Encode(w.code)
	changed := !bytes.Equal(value, w.before)
	if !changed && len(w.topics) == 0 && len(w.bump) == 0 {
		if read {
			return transaction{done: true}, nil
		}
		t.version, err = s.read(ctx, w.name)
		t.read = err == nil
		return t, err
	}
	ops, err := w.operations(ctx, value, changed)
	if err != nil {
		return t, err
	}
	key, epoch := s.keys.lock(w.name), s.keys.epoch()
	compare := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", w.revision),
		clientv3.Compare(clientv3.Value(epoch), "=", epochValue(w.epoch)),
	}
	otherwise := []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(epoch)}
	for i, guard := range s.leases.guards(w.uses) {
		compare = append(compare, clientv3.Compare(clientv3.ModRevision(w.uses[i].key), "=", guard))
		otherwise = append(otherwise, clientv3.OpGet(w.uses[i].key))
	}
	if err := ctx.Err(); err != nil {
		return t, err
	}
	response, err := s.transact(ctx, compare, ops, otherwise)
	switch {
	case err != nil && code(err) == codes.NotFound: // one of the leases
		return t, s.look(ctx, w.attached(), w.life)
	case err != nil:
		t.sent = !refused(err)
		return t, err
	case response.Succeeded:
		if changed {
			w.revision, w.value = response.Header.Revision, value
			s.remember(w.name, w.version)
		}
		return transaction{done: true}, nil
	}
	return s.refute(ctx, w, response.Responses)
}

// refute reads why a transaction was not made.
func (s *Store) refute(ctx context.Context, w *work, responses []*pb.ResponseOp) (t transaction, err error) {
	t.read, t.conflict = true, true
	for i, r := range responses {
		kvs := r.GetResponseRange().Kvs
		switch {
		case i == 0 && len(kvs) > 0:
			t.revision, t.value = kvs[0].ModRevision, kvs[0].Value
		case i == 0:
		case i == 1 && len(kvs) > 0:
			t.epoch, err = s.setEpoch(kvs[0].Value)
		case i == 1:
			t.epoch, err = s.openEpoch(ctx)
		case !living(kvs):
			s.leases.ended(w.uses[i-2])
		default:
			s.leases.bumped(w.uses[i-2], kvs[0].ModRevision)
		}
	}
	return t, err
}
