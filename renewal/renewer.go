package renewal

import (
	"context"
	"fmt"
	"time"
)

// Outcome is the store's reply about one lease.
type Outcome uint8

const (
	// Unknown: no reply, or one without a result for the lease. The renewal is sent again
	// until the lease's time is over.
	Unknown Outcome = iota
	// Renewed: the store has extended the lease.
	Renewed
	// Taken: the lease has another owner at the store.
	Taken
	// Gone: the store has no such lease.
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

// An Item is one lease in a request, with room for the reply.
type Item struct {
	// Key, Owner, Ref and TTL are those of the lease's [Spec]. The lease is to be extended
	// to TTL from now.
	Key, Owner string
	Ref        any
	TTL        time.Duration

	// Outcome is the reply. Its zero value is Unknown.
	Outcome Outcome
	// Given is, with Renewed, the time that the store has given; zero means TTL. The next
	// renewal is due when a third of it has passed. A negative one is over already.
	Given time.Duration
	// Err may explain an Unknown. It becomes [LostError.Err].
	Err error
}

// A Renewer extends leases at a store. Its methods are called from many
// goroutines at once.
type Renewer interface {
	// Group names the part of the store that a lease lives on and may fail with: a node,
	// a shard, "" if there is only one. Leases of one group may share requests. key and
	// ref are those of the lease's [Spec]. Group is called before each renewal, since a
	// store's topology may change, and must not block. After a panic in it, or
	// runtime.Goexit, the lease is of group "" for this renewal.
	Group(key string, ref any) string

	// Renew extends leases of one group at the store and sets the outcomes in items. A
	// fault of one lease must not cost the others their outcome. Renew must return when
	// ctx ends, which is soon: each request that hangs occupies a part of its group's
	// share. It must not keep items.
	Renew(ctx context.Context, items []Item)
}

// Alarm is a [Renewer] that notices by itself that leases may be lost. The watchdog then renews
// all of them at once, rather than each when it is due. Fixed leases are not renewed: their loss is
// noticed at their end.
type Alarm interface {
	// OnLoss has lost called, which does not block, whenever leases may be lost. It may be called
	// from any goroutine, until stop has returned.
	OnLoss(lost func()) (stop func())
}
