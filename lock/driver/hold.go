package driver

import (
	"strings"
	"time"
)

// Hold is one ownership of one lock. An acquisition requests it, a renewal extends it,
// and a release ends it. A store reads it and never changes it.
//
// Every store reads Kind, Name, Owner, Count and TTL. The others are extras: their comments
// state what a store does that does not support them.
type Hold struct {
	Kind Kind
	// Name is the lock's name as the user gave it; [ValidateName] has accepted it.
	Name string
	// Owner identifies the ownership among all clients. It begins with the id of its client
	// and a colon, see [ClientOf], except with [KindPermit]: there its first 32 bytes are
	// hexadecimal digits, of that id and of a number. A store need not parse it further. It is new for every acquisition
	// and the same in every attempt of that acquisition.
	Owner string
	// Count is the number of holds that the owner has after the request. It is absolute,
	// so that a request whose reply was lost can be sent again.
	Count int64
	// TTL is how long the store keeps the hold without a renewal. With [KindSemaphore] it
	// is how long a request may be sent again. For twice that time the store remembers
	// what it did for the Owner, unless a [CountForget] lists the Owner.
	TTL time.Duration

	// Queue is for stores with a wait queue, and those that reserve tokens. Other stores
	// ignore it. A store made of other stores sends them none: their queues would differ.
	Queue Queue
	// ReadWrite is for [KindRead] and [KindWrite]. A store of these kinds supports it.
	ReadWrite ReadWrite
	// Semaphore is for [KindSemaphore] and [KindPermit]. A store of these kinds supports it.
	Semaphore Semaphore
	// Keep is set in a release with Count zero of a lock that is to stay taken for so long
	// after its holder has gone. The store then gives the hold this TTL instead, sends no
	// message, and does not repeat the request in the background. It is not set for
	// [KindRead] and [KindWrite]. A store that does not support it returns an error that
	// matches [ErrUnsupported]. Zero: the lock is freed.
	Keep time.Duration
}

// Queue is what a hold requests of a store's wait queue.
type Queue struct {
	// Keep is how long the store keeps the owner's place, at least, after each request, also
	// one of a [PlaceKeeper], with [KindFair]. Zero: no place.
	Keep time.Duration
	// Subscribed is set, with [KindMutex], if the owner has subscribed and wants a place. The
	// place lasts as long as the subscription. When the lock is released to the owner, the
	// store may grant it at once and send a [Notice].
	Subscribed bool
	// Granted is set in a release, with [KindMutex], if the hold was granted by another owner's
	// release. The store then leaves the lock to waiting clients that are not in its queue, if
	// there are any.
	Granted bool
	// Provisional is the TTL of a grant by release, until the first renewal: the waiter may
	// have died. Zero: the hold's TTL.
	Provisional time.Duration
	// Reserve is the number of further tokens that the owner asks to reserve, with
	// [KindMutex]; see [Answer.Reserved].
	Reserve int64
}

// ReadWrite is what a hold requests of a read-write lock.
type ReadWrite struct {
	// BlockReaders is how long the store refuses new readers, at least, after each request
	// of a writer that was refused because of readers. Zero: it does not.
	BlockReaders time.Duration
	// Under is, with [KindRead], the owner of a write lock of the same name that belongs
	// to the same holder, so that this owner may read beside it. Empty: none.
	Under string
}

// Semaphore is what a hold requests of a semaphore.
type Semaphore struct {
	// Permits is the number of permits of the hold; with [KindPermit], zero is one, and they are
	// granted, renewed and released together. With [KindSemaphore] a release returns them if the
	// store remembers that the Owner took them.
	Permits int64
	// Owed is set, with [KindSemaphore], in a release of permits that another Owner has taken, as the caller claims.
	// The store then returns them without a record that this Owner took them, but once for
	// each Owner, and not if the count would exceed [MaxCount].
	Owed bool
}

// ClientOf returns the id of an owner's client, see [Client]; empty if the owner has none, as
// permits of other libraries. One in sixteen of these has the form of a client's: only a record
// shows that there is such a client.
func ClientOf(owner string) string {
	if client, _, ok := strings.Cut(owner, ":"); ok {
		return client
	}
	permit, _, _ := strings.Cut(owner, "*")
	if len(permit) != 32 || permit[12] != '8' {
		return ""
	}
	return strings.Join([]string{permit[:8], permit[8:12], permit[12:16], permit[16:20], "000000000000"}, "-")
}

// Plain reports whether the hold has no extras.
func (h *Hold) Plain() bool {
	return *h == Hold{Kind: h.Kind, Name: h.Name, Owner: h.Owner, Count: h.Count, TTL: h.TTL}
}

// Several is the Ref of a renewed lease of [KindPermit] with so many permits, above one. That
// of every other lease is the [Kind] of its hold.
type Several int64

// RefOf returns the Ref of the hold's lease.
func RefOf(h *Hold) any {
	if h.Kind == KindPermit && h.Semaphore.Permits > 1 {
		return Several(h.Semaphore.Permits)
	}
	return h.Kind
}

// ParseRef returns the kind of a lease with that Ref, and its number of permits if it has
// several. nil is that of a mutex. ok is false for any other value.
func ParseRef(ref any) (k Kind, s Semaphore, ok bool) {
	switch ref := ref.(type) {
	case nil:
		return KindMutex, Semaphore{}, true
	case Kind:
		return ref, Semaphore{}, true
	case Several:
		return KindPermit, Semaphore{Permits: int64(ref)}, true
	}
	return 0, Semaphore{}, false
}
