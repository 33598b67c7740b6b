package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

const (
	// sweepEvery is how often the stores of a prefix remove records, together.
	sweepEvery = time.Minute
	// sweepTimeout bounds one sweep.
	sweepTimeout = sweepEvery / 2
)

// planSweep has a sweep follow a record that no lease ends, and that is about to be written: if all
// stores that have a part in it die, nothing else removes it.
func (s *Store) planSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = time.Now()
	if s.sweeping || s.closed {
		return
	}
	s.sweeping = true
	s.running.Go(func() {
		for again := true; again && s.ctx.Err() == nil; {
			backoff.Sleep(s.ctx, sweepEvery)
			ctx, cancel := context.WithTimeout(s.ctx, sweepTimeout)
			again = s.sweepsOn(s.sweep(ctx))
			cancel()
		}
	})
}

// sweepsOn reports whether another sweep is to follow one that has left records, or may have missed
// one that was planned shortly before it.
func (s *Store) sweepsOn(left bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeping = left || time.Since(s.planned) < 2*sweepEvery
	return s.sweeping
}

// sweep makes a step on each record that no lease ends, and removes other keys without a lease, unless
// another store does so in this minute. It reports whether there may be more.
func (s *Store) sweep(ctx context.Context) (left bool) {
	if l, err := s.leases.get(ctx, class{sweepEvery, forSweep}); err != nil || !s.claimSweep(ctx, l) {
		return true
	}
	begin := s.keys.prefix
	for key, end := begin, clientv3.GetPrefixRangeEnd(begin); ; {
		response, err := s.get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(pageOf))
		if err != nil {
			return true
		}
		for _, kv := range response.Kvs {
			key = string(kv.Key) + "\x00"
			if kv.Lease != 0 || string(kv.Key) == s.keys.epoch() {
				continue
			}
			left = true
			var r record
			name, ok := s.keys.nameOf(kv.Key)
			switch {
			case ok && !machine.Decode(kv.Value, r.code): // of another version
			case ok && len(r.leases()) > 0:
				s.tidy(ctx, name, r.leases()) //nolint:errcheck // the next sweep does it
			default: // copied from another cluster
				same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)}
				s.transact(ctx, same, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil) //nolint:errcheck // the next sweep does it
			}
		}
		if !response.More {
			return left
		}
	}
}

// claimSweep reports whether a sweep is due, which is this store's then.
func (s *Store) claimSweep(ctx context.Context, l *lease) bool {
	key := s.keys.sweep()
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", 0)} // or copied
	response, err := s.transact(ctx, absent, []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(l.id))}, nil)
	return err == nil && response.Succeeded
}
