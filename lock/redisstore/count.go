package redisstore

import (
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
)

var _ driver.Counter = (*Store)(nil)

// ops are the operations' names in scripts.
var ops = map[driver.CountOp]string{
	driver.CountRead:   "read",
	driver.CountCreate: "create",
	driver.CountAdd:    "add",
	driver.CountDrain:  "drain",
	driver.CountDelete: "delete",
	driver.CountSet:    "set",
}

// Count reads or changes a count, in one round trip.
func (s *Store) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	r, k, err := s.request(ctx, c.Kind, c.Name)
	if err != nil {
		return driver.Counted{}, err
	}
	if c.Op == driver.CountForget && k == &semaphore {
		if len(c.Forget) == 0 {
			return driver.Counted{}, nil
		}
		records := make([]key, len(c.Forget))
		for i, owner := range c.Forget {
			records[i] = requestKey(r.at, owner)
		}
		_, err = s.transport.Run(ctx, newCall(semaphoreForget, records, c.Keep.Milliseconds()))
		return driver.Counted{}, err
	}
	op, known := ops[c.Op]
	if k.counter == nil || !known || c.Op == driver.CountSet && k != &permit {
		return driver.Counted{}, fmt.Errorf("%w: operation %d on the count of a %v", driver.ErrUnsupported, c.Op, c.Kind)
	}
	reply, err := s.transport.Run(ctx, newCall(k.counter, k.counting(s, r.at, c.Request), op, c.N, c.Keep.Milliseconds(), r.publish, driver.MaxCount, c.TTL.Milliseconds()))
	if err != nil {
		return driver.Counted{}, err
	}
	n, err := numbers(reply, 2)
	return driver.Counted{Done: n[0] == 1, Count: n[1], Foreign: n[0] == 2}, err
}
