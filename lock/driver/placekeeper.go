package driver

import (
	"context"
	"time"
)

// PlaceKeeper is a [Store] that keeps the places of many waiters for a lock of [KindFair] with
// one request. On another store each waiter keeps its own, see [Queue.Keep].
type PlaceKeeper interface {
	// KeepPlaces prolongs the places that owners have in a lock's wait queue, as a request to
	// acquire by each would, and makes none. It returns the indexes of the owners that are to
	// send such a request: those without a place, the head of the queue, and any one that has
	// a place if the head is dead. Others wait for a [Notice]. A request has at most 500 owners.
	KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error)
}
