package redisstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/renewal"
)

// Renew prolongs leases in batches, one for each script, and in a cluster for each slot.
// Several batches share one pipeline. If the server refuses a batch, and one of its leases
// may be the reason, Renew sends each lease again in a run of its own.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	all := make([]int, len(items))
	for i := range items {
		all[i] = i
	}
	batches := s.batches(items, all, len(items))
	var apart []int
	for i, reply := range s.replies(ctx, batches) {
		b := batches[i]
		if err, failed := reply.(error); failed && len(b.items) > 1 && fault.OfOneKey(err) {
			apart = append(apart, b.items...)
			continue
		}
		settle(items, b.items, reply)
	}
	batches = s.batches(items, apart, 1)
	for i, reply := range s.replies(ctx, batches) {
		settle(items, batches[i].items, reply)
	}
}

// keep lets a hold end h.Keep from now, instead of releasing it.
func (s *Store) keep(ctx context.Context, h *driver.Hold) (held bool, err error) {
	item := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.Keep}}
	s.Renew(ctx, item)
	return item[0].Outcome == renewal.Renewed, item[0].Err
}

// replies runs batches and returns each one's reply, which may be an error.
func (s *Store) replies(ctx context.Context, batches []*batch) []any {
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = &b.call
	}
	return s.transport.RunAll(ctx, calls)
}

// batch is one run of a script and the indexes of the items that it prolongs.
type batch struct {
	call
	items []int
}

// batches returns the runs that prolong some of the items, at most so many in each. There
// is a run for each script, and in a cluster for each script and slot.
func (s *Store) batches(items []renewal.Item, some []int, most int) []*batch {
	type together struct {
		script *script
		tag    string
	}
	var batches []*batch
	open := make(map[together]*batch)
	for _, i := range some {
		lease := &items[i]
		k, err := s.leasedBy(lease.Ref)
		at, unfit := s.names.key(lease.Key)
		if err = cmp.Or(err, unfit); err != nil {
			items[i].Err = err
			continue
		}
		run, room := together{script: k.renewal()}, min(len(some), most)
		if s.cluster != nil {
			run.tag, room = hashTag(at), 1
		}
		b := open[run]
		if b == nil || len(b.items) == most {
			b = newBatch(run.script, room)
			open[run] = b
			batches = append(batches, b)
		}
		k.prolong(&b.call, at, lease)
		b.items = append(b.items, i)
	}
	return batches
}

func newBatch(script *script, room int) *batch {
	return &batch{
		call:  call{script: script, keys: make([]any, 0, room), args: make([]any, 0, 2*room)},
		items: make([]int, 0, room),
	}
}

// leasedBy returns the kind of lock of a lease with that Ref, by default a mutex.
func (s *Store) leasedBy(ref any) (leased, error) {
	kind, _, ok := driver.ParseRef(ref)
	if !ok {
		return nil, fmt.Errorf("redisstore: the Ref of a lease is a %T, not that of its hold", ref)
	}
	return s.leasedKind(kind)
}

// settle stores a script's reply, or its error, in the items of a batch.
func settle(items []renewal.Item, batch []int, reply any) {
	if err, failed := reply.(error); failed {
		for _, i := range batch {
			items[i].Err = err
		}
		return
	}
	codes, ok := reply.([]any)
	if !ok || len(codes) != len(batch) {
		for _, i := range batch {
			items[i].Err = fault.Unexpected(reply)
		}
		return
	}
	for n, i := range batch {
		if ms, ok := codes[n].(int64); ok && ms > 1 {
			items[i].Outcome, items[i].Given = renewal.Renewed, remaining(ms)
			continue
		}
		items[i].Outcome, items[i].Err = outcome(codes[n])
	}
}

// outcome parses the script's reply for one lease: a code, or the text of the server's
// error. The error is a string: an error reply inside an array would make go-redis lose
// its place in the stream, see docs/upstream.md.
func outcome(code any) (renewal.Outcome, error) {
	switch code := code.(type) {
	case int64:
		switch code {
		case 1:
			return renewal.Renewed, nil
		case 0:
			return renewal.Gone, nil
		case -1:
			return renewal.Taken, nil
		}
	case string:
		return renewal.Unknown, fault.Classify(fault.Refusal(code))
	}
	return renewal.Unknown, fault.Unexpected(code)
}
