package etcdstore

import (
	"cmp"
	"context"
	"sync"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

// maxMoves is how many holds a renewal moves to another lease at a time.
const maxMoves = 16

// Group returns the same group for all leases, see [renewal.Renewer].
func (s *Store) Group(string, any) string { return "" }

// Renew prolongs leases, see [renewal.Renewer]. Those that share an etcd lease take one keepalive.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	begin := s.clock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		for i := range items {
			items[i].Err = err
		}
		return
	}
	shared, alone := s.share(items, begin)
	if len(shared) > 0 {
		alone = append(alone, s.renewShared(ctx, items, shared, begin)...)
	}
	slots := make(chan struct{}, maxMoves)
	var work sync.WaitGroup
	for _, i := range alone {
		slots <- struct{}{}
		work.Go(func() {
			s.renewAlone(ctx, &items[i], begin)
			<-slots
		})
	}
	work.Wait()
	if stuck := s.stuck(items, alone, begin); len(stuck) > 0 {
		s.renewShared(ctx, items, stuck, begin)
	}
}

// stuck returns the leases of items that could not move, as in a cluster without space. They keep the
// lease that they have: a hold by it that is not renewed ends late rather than the others early. A move
// that may still be on its way could end a hold before that lease.
func (s *Store) stuck(items []renewal.Item, alone []int, begin time.Duration) map[*lease][]int {
	stuck := make(map[*lease][]int)
	for _, i := range alone {
		item := &items[i]
		if !decided(item.Err) {
			continue
		}
		if l := s.leases.renewable(hold{item.Key, item.Owner}, item.TTL.Truncate(time.Second), begin); l != nil {
			stuck[l] = append(stuck[l], i)
		}
	}
	return stuck
}

// holdOf returns the hold of a renewed lease.
func holdOf(item *renewal.Item) *driver.Hold {
	kind, permits, _ := driver.ParseRef(item.Ref)
	return &driver.Hold{Kind: kind, Name: item.Key, Owner: item.Owner, TTL: forever, Semaphore: permits}
}

// share finds the leases that a keepalive prolongs for the items. The others are alone.
func (s *Store) share(items []renewal.Item, begin time.Duration) (shared map[*lease][]int, alone []int) {
	shared = make(map[*lease][]int)
	for i := range items {
		item := &items[i]
		ttl, err := whole(item.TTL)
		if item.Err = cmp.Or(s.Supports(holdOf(item).Kind), err); item.Err != nil {
			continue
		}
		if l := s.leases.renewable(hold{item.Key, item.Owner}, ttl, begin); l != nil {
			shared[l] = append(shared[l], i)
		} else {
			alone = append(alone, i)
		}
	}
	for l, some := range shared {
		if !s.leases.keepable(l, begin) {
			delete(shared, l)
			alone = append(alone, some...)
		}
	}
	return shared, alone
}

// renewShared keeps leases alive, and reads the records of their holds. It returns the items whose
// records are to be looked at closely.
func (s *Store) renewShared(ctx context.Context, items []renewal.Item, shared map[*lease][]int, begin time.Duration) (alone []int) {
	var ids []clientv3.LeaseID
	var keys []string
	for l, some := range shared {
		ids = append(ids, l.id)
		for _, i := range some {
			keys = append(keys, s.keys.lock(items[i].Key))
		}
	}
	of, kvs, err := s.keeper.keep(ctx, ids, keys)
	if err != nil {
		for _, some := range shared {
			for _, i := range some {
				items[i].Err = failed(err)
			}
		}
		return nil
	}
	for l, some := range shared {
		k := of[l.id]
		if k.ttl <= 0 {
			s.leases.ended(l)
			alone = append(alone, some...)
			continue
		}
		s.leases.kept(l, k.sent)
		for _, i := range some {
			item := &items[i]
			if s.holds(item, l, kvs[s.keys.lock(item.Key)]) {
				item.Outcome, item.Given, item.Err = renewal.Renewed, s.leases.left(l, begin), nil
			} else {
				alone = append(alone, i)
			}
		}
	}
	return alone
}

// holds reports whether a record has the hold of an item, by a lease.
func (s *Store) holds(item *renewal.Item, l *lease, kv *mvccpb.KeyValue) bool {
	if kv == nil {
		return false
	}
	w, err := s.load(item.Key, version{revision: kv.ModRevision, value: kv.Value}, nil)
	return err == nil && w.of[item.Owner].lease == l.id && w.state.Renew(w.now, holdOf(item)).Verdict == driver.Granted
}

// renewAlone moves a hold to another lease, if there is the hold.
func (s *Store) renewAlone(ctx context.Context, item *renewal.Item, begin time.Duration) {
	h, id := holdOf(item), hold{item.Key, item.Owner}
	var a driver.Answer
	w, err := s.step(ctx, item.Key, id, func(w *work) []machine.Message {
		w.verify(item.Owner)
		if a = w.state.Renew(w.now, h); a.Verdict == driver.Granted {
			w.claims = wanted{owner: item.Owner, ttl: item.TTL.Truncate(time.Second), other: true}
		} else {
			w.refused()
		}
		return nil
	})
	if err != nil {
		item.Err = err
		return
	}
	switch a.Verdict {
	case driver.Granted:
		if l := w.leaseOf(item.Owner); l != nil {
			s.leases.put(id, l, begin)
			s.leases.certain(id) // the record is another one than those steps found
			item.Outcome, item.Given = renewal.Renewed, s.leases.left(l, begin)
		}
		return
	case driver.Refused:
		item.Outcome = renewal.Taken
	case driver.NotHeld:
		item.Outcome = renewal.Gone
	}
	s.leases.drop(id)
}
