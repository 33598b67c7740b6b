package quorum

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// DefaultNodeTimeout is how long a node has for one request.
const DefaultNodeTimeout = 250 * time.Millisecond

// Config configures a [Store]. Its zero value is ready to use.
type Config struct {
	// NodeTimeout bounds one request to one node; a third of the lock's TTL bounds it
	// too. It should be a small part of the TTL, since the nodes' response time shortens
	// the lease. It should be a large multiple of a round trip, including a new
	// connection. Default: 250 ms.
	NodeTimeout time.Duration

	// LooseTokens omits what makes fencing tokens grow independently of clocks: the
	// proposal, and the second round trip that some acquisitions need. Tokens then grow by
	// the nodes' clocks; see the package's documentation. Use it for locks whose tokens
	// are never compared.
	LooseTokens bool

	// Move accepts an even number of stores, two included, as a step of a move: a fleet adds or
	// removes one store at a time; see the package's documentation. Otherwise an even number
	// tolerates no more failures than one store fewer, and is slower.
	Move bool
}

// validate returns an error for a quorum of stores that cannot work.
func (c Config) validate(stores []driver.Store) error {
	n := len(stores)
	switch {
	case c.NodeTimeout < 0 || c.NodeTimeout > driver.MaxTTL:
		return fmt.Errorf("quorum: NodeTimeout %v is outside 0 … %v; 0 is %v", c.NodeTimeout, driver.MaxTTL, DefaultNodeTimeout)
	case n < 3 && !(c.Move && n == 2):
		return fmt.Errorf("quorum: %d stores tolerate no failure; accepted are 3 and more, and 2 with Move; use a single store directly", n)
	case n%2 == 0 && !c.Move:
		return fmt.Errorf("quorum: %d stores tolerate as many failures as %d, and are slower; accepted are odd numbers, and even ones with Move", n, n-1)
	case n > mostNodes:
		return fmt.Errorf("quorum: %d stores are too many; accepted are up to %d", n, mostNodes)
	}
	seen := make(map[driver.Store]int, n)
	for i, store := range stores {
		if store == nil {
			return fmt.Errorf("quorum: store %d is nil", i)
		}
		if !reflect.ValueOf(store).Comparable() {
			continue // cannot be compared
		}
		if first, twice := seen[store]; twice {
			return fmt.Errorf("quorum: stores %d and %d are the same: one node would vote twice", first, i)
		}
		seen[store] = i
	}
	err := sameDatabase(stores)
	if !c.LooseTokens {
		err = errors.Join(err, countingByClock(stores), countingTogether(stores))
	}
	for i, store := range stores {
		if missing := store.Supports(driver.KindMutex); missing != nil {
			err = errors.Join(err, fmt.Errorf("quorum: store %d: %w", i, missing))
		}
	}
	return err
}

// countingByClock refuses stores of which a majority may be no [driver.Fencer]. Such a majority may
// count by anything, as etcd does by its revision: the tokens of two majorities that share one such
// node then do not compare. Where a Fencer is in each, its clock decides.
func countingByClock(stores []driver.Store) error {
	var others []int
	for i, store := range stores {
		if _, ok := store.(driver.Fencer); !ok {
			others = append(others, i)
		}
	}
	if len(others) <= len(stores)/2 {
		return nil
	}
	return fmt.Errorf("quorum: stores %v count fencing tokens of their own, and are enough for a majority, whose tokens would not grow; accepted are fewer of them, or LooseTokens", others)
}

// countingTogether refuses stores of which some give no tokens: a majority of those would end what the
// others count.
func countingTogether(stores []driver.Store) error {
	var without []int
	for i, store := range stores {
		if s, ok := store.(interface{ Fences() bool }); ok && !s.Fences() {
			without = append(without, i)
		}
	}
	if len(without) == 0 || len(without) == len(stores) {
		return nil
	}
	return fmt.Errorf("quorum: stores %v give no fencing tokens, and the others do; accepted are tokens of all (for plain locks PlainTokens), of none, or LooseTokens", without)
}

// database is a store whose server has several databases.
type database interface{ Database() int }

// sameDatabase refuses stores that use different databases. A server under two names is
// detected by its keys, and each database has its own.
func sameDatabase(stores []driver.Store) error {
	first, number := -1, 0
	for i, store := range stores {
		d, ok := store.(database)
		switch {
		case !ok:
		case first < 0:
			first, number = i, d.Database()
		case d.Database() != number:
			return fmt.Errorf("quorum: stores %d and %d use databases %d and %d; accepted is one number for all, so that one server under two names is found", first, i, number, d.Database())
		}
	}
	return nil
}
