package renewal

import (
	"context"
	"fmt"
	"time"
)

// Outcome is what a store says about one lease.
type Outcome uint8

const (
	// Unknown: no answer, or one that says nothing about the lease. It is asked
	// again until the lease's time is over.
	Unknown Outcome = iota
	// Renewed: the store has extended the lease.
	Renewed
	// Taken: the store says that the lease is another owner's.
	Taken
	// Gone: the store knows no such lease.
	Gone

	outcomes = iota
)

var outcomeNames = [outcomes]string{"unknown", "renewed", "taken", "gone"}

func (o Outcome) String() string {
	if o >= outcomes {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomeNames[o]
}

// An Item is one lease in a request, with room for the answer.
type Item struct {
	// Lease is whose time is to be extended to [Lease.TTL] from now. A renewer
	// only reads it: Key, Owner, TTL, Ref.
	Lease *Lease

	// Outcome is the answer. Its zero value is Unknown.
	Outcome Outcome
	// TTL is, with Renewed, the time that the store has chosen to give; zero if
	// it gave what was asked. The next renewal is due when a third of it has
	// passed.
	TTL time.Duration
	// Err may tell more about an Unknown. It ends up in [LostError.Err].
	Err error
}

// A Renewer extends leases at a store. Its methods are called from many
// goroutines at once.
type Renewer interface {
	// Group names the part of the store that a lease lives on and may fail with:
	// a node, a shard, "" if there is but one. Leases of one group may travel
	// together. It is asked before each renewal, since a store's topology may
	// change, and must not block.
	Group(key string) string

	// Renew asks the store to extend leases of one group and notes the answers in
	// items. One lease's trouble must not cost the others their answer. It must
	// return when ctx ends, which it does soon: with each request that hangs, a
	// group loses a part of its share. It must not keep items.
	Renew(ctx context.Context, items []Item)
}

// A Releaser is a [Renewer] that can also give leases back; [Watchdog.Close]
// uses it.
type Releaser interface {
	// Release gives leases of one group back, as Renew extends them. Gone stands
	// for a lease that the store has no more, Taken for one that is another
	// owner's: either way nothing is left to release. Unknown is tried again.
	Release(ctx context.Context, items []Item)
}
