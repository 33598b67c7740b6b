package redisstore

import (
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// counted is a kind of lock that is, or has, a count.
type counted interface {
	// counting returns the script that reads and changes the count, and its keys: the
	// lock's own and the record of a request's outcome.
	counting(s *Store, at key, request string) (sc *transport.Script, keys []key)
}

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

// requestKey is the key of a request's remembered outcome.
func requestKey(at key, request string) key {
	return derive("leasewheel_request", at) + ":" + key(request)
}

// Count reads or changes a count, in one round trip.
func (s *Store) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	k, err := s.kindOf(c.Kind)
	if err != nil {
		return driver.Counted{}, err
	}
	if c.Op == driver.CountForget && c.Kind == driver.KindSemaphore {
		return s.forget(ctx, c)
	}
	counter, ok := k.(counted)
	op, known := ops[c.Op]
	if !ok || !known || c.Op == driver.CountSet && c.Kind != driver.KindPermit {
		return driver.Counted{}, fmt.Errorf("%w: operation %d on the count of a %v", driver.ErrUnsupported, c.Op, c.Kind)
	}
	publish, err := s.publishing(ctx)
	if err != nil {
		return driver.Counted{}, err
	}
	at, err := s.names.key(c.Name)
	if err != nil {
		return driver.Counted{}, err
	}
	sc, keys := counter.counting(s, at, c.Request)
	reply, err := s.run(ctx, sc, keys, op, c.N, c.Keep.Milliseconds(), publish, driver.MaxCount, c.TTL.Milliseconds())
	if err != nil {
		return driver.Counted{}, err
	}
	code, count, err := pair(reply)
	if err != nil {
		return driver.Counted{}, err
	}
	return driver.Counted{Done: code == 1, Count: count, Foreign: code == 2}, nil
}
