package redisstore

import (
	"context"

	"github.com/leasewheel/leasewheel/renewal"
)

// Renew prolongs leases: on a single server all in one script, in a cluster those
// of one slot in one script, and the scripts in one pipeline.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	batches := s.batches(items)
	calls := make([]call, len(batches))
	for i, batch := range batches {
		calls[i] = renewCall(items, batch)
	}
	if len(calls) == 1 {
		reply, err := s.run(ctx, renew, calls[0].keys, calls[0].args...)
		if err != nil {
			reply = err
		}
		settle(items, batches[0], reply)
		return
	}
	for i, reply := range s.runAll(ctx, calls) {
		settle(items, batches[i], reply)
	}
}

// batches returns the items, by their indexes, that may share a script.
func (s *Store) batches(items []renewal.Item) [][]int {
	if s.cluster == nil {
		all := make([]int, len(items))
		for i := range items {
			all[i] = i
		}
		return [][]int{all}
	}
	var batches [][]int
	byTag := make(map[string]int, len(items))
	for i := range items {
		tag := hashTag(items[i].Lease.Key())
		at, known := byTag[tag]
		if !known {
			at = len(batches)
			byTag[tag] = at
			batches = append(batches, nil)
		}
		batches[at] = append(batches[at], i)
	}
	return batches
}

func renewCall(items []renewal.Item, batch []int) call {
	c := call{script: renew, keys: make([]string, len(batch)), args: make([]any, 0, 2*len(batch))}
	for i, item := range batch {
		lease := items[item].Lease
		c.keys[i] = lease.Key()
		c.args = append(c.args, lease.TTL().Milliseconds(), lease.Owner())
	}
	return c
}

// settle notes a script's reply, or its failure, in the items of a batch.
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
			items[i].Err = unexpected(reply)
		}
		return
	}
	for n, i := range batch {
		items[i].Outcome, items[i].Err = outcome(codes[n])
	}
}

// outcome reads what the script says about one lease.
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
	case error:
		return renewal.Unknown, classify(code)
	}
	return renewal.Unknown, unexpected(code)
}
