package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// keeper keeps etcd leases alive. A keepalive is answered by what a member takes for the leader,
// without the others: a leader that was deposed answers it, too, and the new one does not know of
// it. So it counts only if a read follows that a quorum has confirmed, in the raft term of a read
// before. One member must have answered all three: in that term it knew one leader alone, to which it
// has forwarded the keepalive, and which led until the second read. One connection does not suffice,
// as a balancer may send its requests to several members.
type keeper struct {
	client *clientv3.Client
	clock  clock
	key    string                 // that of the epoch
	epoch  func(*mvccpb.KeyValue) // is called with each version of key that is read
	use    chan struct{}          // has one element while no round runs; guards what follows
	member int
	conn   *grpc.ClientConn
	kv     pb.KVClient
	lease  pb.LeaseClient
	stream pb.Lease_LeaseKeepAliveClient // of keepalives on this connection; nil: none yet
	last   place                         // of the last read; zero: none on this connection
	closed bool

	streams context.Context    // of the stream, as it outlasts a round; a member without a leader ends it
	cut     context.CancelFunc // ends streams

	voided atomic.Int64 // rounds that did not count as the leader has changed
}

func newKeeper(client *clientv3.Client, now clock, key string, epoch func(*mvccpb.KeyValue)) *keeper {
	k := &keeper{client: client, clock: now, key: key, epoch: epoch, use: make(chan struct{}, 1)}
	k.use <- struct{}{}
	return k
}

// place is a member in a raft term.
type place struct{ member, term uint64 }

// kept is what became of a keepalive.
type kept struct {
	sent time.Duration
	ttl  int64 // s; 0 or less: the lease has ended
}

// maxRounds is how often a round is made, if the leader changes or a member knows none.
const maxRounds = 5

var (
	errLeaderChanged  = errors.New("the leader has changed during a keepalive")
	errStreamEnded    = errors.New("the stream of keepalives has ended since the last one")
	errSeveralMembers = errors.New("several members have answered on one connection: the client's endpoints must be members, not a balancer")
)

// keep keeps leases alive, and then reads keys. Without an error it counts.
func (k *keeper) keep(ctx context.Context, ids []clientv3.LeaseID, keys []string) (of map[clientv3.LeaseID]kept, kvs map[string]*mvccpb.KeyValue, err error) {
	select {
	case <-k.use:
		defer func() { k.use <- struct{}{} }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	for range maxRounds {
		of, kvs, err = k.round(clientv3.WithRequireLeader(ctx), ids, keys)
		if err != nil && !errors.Is(err, errLeaderChanged) {
			k.disconnect() // the next round tries another member
			if !elsewhere(err) && !errors.Is(err, errSeveralMembers) && !errors.Is(err, errStreamEnded) {
				break
			}
		} else if err == nil {
			break
		}
	}
	return of, kvs, err
}

func (k *keeper) round(ctx context.Context, ids []clientv3.LeaseID, keys []string) (of map[clientv3.LeaseID]kept, kvs map[string]*mvccpb.KeyValue, err error) {
	if err := k.connect(); err != nil {
		return nil, nil, err
	}
	if k.last == (place{}) {
		if k.last, err = k.read(ctx, nil, nil); err != nil {
			return nil, nil, err
		}
	}
	if of, err = k.send(ctx, ids); err != nil {
		return nil, nil, err
	}
	kvs = make(map[string]*mvccpb.KeyValue)
	before := k.last
	if len(keys) == 0 {
		k.last, err = k.read(ctx, nil, kvs)
	}
	for some := range slices.Chunk(keys, maxOps-1) { // and the epoch
		if k.last, err = k.read(ctx, some, kvs); err != nil || k.last != before {
			break
		}
	}
	switch {
	case err != nil:
	case k.last.member != before.member:
		err = errSeveralMembers
	case k.last.term != before.term:
		k.voided.Add(1)
		err = errLeaderChanged
	}
	return of, kvs, err
}

// read reads the epoch, and keys, after a quorum has confirmed the leader, and returns who has answered.
func (k *keeper) read(ctx context.Context, keys []string, kvs map[string]*mvccpb.KeyValue) (by place, err error) {
	request := &pb.TxnRequest{}
	for _, key := range append([]string{k.key}, keys...) {
		get := &pb.RangeRequest{Key: []byte(key)}
		request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get}})
	}
	response, err := k.kv.Txn(ctx, request)
	if err != nil {
		return by, err
	}
	for i, r := range response.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			if i == 0 {
				k.epoch(kv)
			} else {
				kvs[string(kv.Key)] = kv
			}
		}
	}
	return place{response.GetHeader().GetMemberId(), response.GetHeader().GetRaftTerm()}, nil
}

// send sends keepalives, and waits for their answers. Rounds on one connection share a stream: for each
// stream etcd's client has a user's password checked, which takes a member's processor some 75 ms.
func (k *keeper) send(ctx context.Context, ids []clientv3.LeaseID) (of map[clientv3.LeaseID]kept, err error) {
	of = make(map[clientv3.LeaseID]kept, len(ids))
	if len(ids) == 0 {
		return of, nil
	}
	stop := context.AfterFunc(ctx, k.cut)
	defer func() {
		if !stop() { // the stream has ended, or is about to
			of, err = nil, ctx.Err()
		}
	}()
	former := k.stream != nil
	if !former {
		if k.stream, err = k.lease.LeaseKeepAlive(k.streams); err != nil {
			return nil, err
		}
	}
	for i, id := range ids {
		sent := k.clock()
		err := k.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)})
		var answer *pb.LeaseKeepAliveResponse
		if received, failed := k.stream.Recv(); err == nil || failed != nil { // which has the reason why nothing was sent
			answer, err = received, failed
		}
		if err != nil {
			if former && i == 0 {
				err = fmt.Errorf("%w: %w", errStreamEnded, err)
			}
			return nil, err
		}
		if answer.GetHeader().GetMemberId() != k.last.member {
			return nil, errSeveralMembers
		}
		if answer.ID != int64(id) {
			return nil, fmt.Errorf("a keepalive of lease %x was answered for %x", id, answer.ID)
		}
		of[id] = kept{sent, answer.TTL}
	}
	return of, nil
}

func (k *keeper) connect() error {
	if k.closed {
		return errClosed
	}
	if k.conn != nil {
		return nil
	}
	members := k.client.Endpoints()
	if len(members) == 0 {
		return errors.New("the client has no endpoints")
	}
	conn, err := k.client.Dial(members[k.member%len(members)])
	if err != nil {
		return err
	}
	k.conn, k.kv, k.lease, k.last = conn, pb.NewKVClient(conn), pb.NewLeaseClient(conn), place{}
	k.streams, k.cut = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	return nil
}

func (k *keeper) disconnect() {
	k.member++
	if k.conn != nil {
		_ = k.conn.Close() // ends the stream, too
		k.conn, k.stream = nil, nil
	}
}

func (k *keeper) close() {
	<-k.use
	k.closed = true
	k.disconnect()
	k.use <- struct{}{}
}
