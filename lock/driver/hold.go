package driver

import "time"

// Hold is one ownership of one lock. An acquisition requests it, a renewal extends it (as
// [renewal.Lease.Ref]) and a release ends it. A store reads it and never changes it.
type Hold struct {
	Kind Kind
	// Name is the lock's name as the user gave it; lock.ValidateName has accepted it.
	Name string
	// Owner identifies the ownership among all clients. Its form is "<uuid>:<int64>".
	// With [KindPermit] it is 32 hexadecimal digits, followed by "*n" for n permits at
	// once. It is new for every acquisition and the same in every attempt of that
	// acquisition.
	Owner string
	// Count is the number of holds that the owner has after the request. It is absolute,
	// so that a request whose reply was lost can be sent again.
	Count int64
	// TTL is how long the store keeps the hold without a renewal. With [KindSemaphore] it
	// is how long a request may be sent again. For twice that time the store remembers
	// what it did for the Owner, unless a later request lists the Owner in Forget.
	TTL time.Duration
	// Permits is the number of permits of the hold, with [KindSemaphore]. A release
	// returns them if the store remembers that the Owner took them.
	Permits int64
	// Forget lists owners whose requests the store need not remember any more, because
	// they were answered. Used with [KindSemaphore].
	Forget []string
	// Owed is set in a release of [KindSemaphore] for permits that another Owner has
	// taken, as the caller claims. The store then returns them without a record that this
	// Owner took them, but once for each Owner, and not if the count would exceed
	// lock.MaxCount.
	Owed bool
	// Wait is how long the store keeps the owner's place in its queue after each request,
	// for kinds with a queue such as [KindFair]. Zero: the owner does not wait.
	//
	// With [KindWrite], Wait is how long new readers are kept out after each request that
	// was refused because of readers. Zero: they are not kept out.
	//
	// With [KindMutex], a Wait above zero means that the owner waits and has subscribed.
	// When another owner releases the lock, the store may grant it to this one and send a
	// [Notice]. A store made of other stores sends them zero.
	Wait time.Duration
	// ProvisionalTTL is the TTL of a grant by release, until the first renewal: the waiter
	// may have died. Zero: TTL.
	ProvisionalTTL time.Duration
	// GrantedByRelease is set in a release if the hold was granted by another owner's
	// release. The store then leaves the lock to waiting clients that are not in its
	// queue, if there are any.
	GrantedByRelease bool
	// Reserve is the number of further tokens that the owner asks to reserve, with
	// [KindMutex]. See [Answer.Reserved].
	Reserve int64
	// Under is, with [KindRead], the owner of a write lock of the same name that belongs
	// to the same holder, so that this owner may read beside it. Empty: none.
	Under string
}
