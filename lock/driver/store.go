package driver

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Store is the storage of locks, such as Redis. Its methods are safe for concurrent use.
//
// A store never repeats a request whose outcome is unknown, other than a release in the
// background. Package lock decides what to repeat, because only it knows what is ambiguous
// then. A transient error matches [ErrUnavailable], also that of a request whose context ended
// before the answer or before the request; an error of a request that certainly had no effect
// matches [ErrNotDone]. Requests are bounded by their context, whose values they may use.
//
// Every request of package lock has a deadline. A request that reaches the server later than
// [MaxLateness] after it changes nothing, unless it is a release: that ends only its owner's
// hold, and no owner comes again. A release that is sent MaxLateness after the deadline of an
// acquisition, and is confirmed, leaves nothing of it, also if it finds nothing: if the server
// may still be applying the acquisition, the release waits for it or prevents it. A store may
// implement both with a deadline that the server checks as it applies a request in one step.
// They then fail if a server's clock is set back in the meantime. A store whose servers have no
// clock for that keeps the second promise alone: what arrives late lasts until its owner's release
// or, if the process has died, for a TTL.
//
// The store removes what has ended, without a request for it: holds by their TTL, places in its
// queue, records of requests, clients and tokens. Nothing is left of a name that is not used
// any more, a while after its last record ended.
//
// A kind of lock is a value of [Kind] with its own fields in [Hold], not a method of
// Store. New kinds, and stores made of other stores, therefore need no new methods.
type Store interface {
	// Renewer renews holds for the watchdog. The Ref of each lease is that of [RefOf], and its
	// Owner the hold's.
	renewal.Renewer

	// Supports returns nil if the store supports locks of this kind. Otherwise it returns
	// an error that matches [ErrUnsupported] and gives the reason, as Acquire does then.
	Supports(Kind) error

	// Acquire requests the hold. A hold that the owner already has is granted again, with
	// a new TTL, so an acquisition whose reply was lost can be sent again. With Count > 1
	// the owner must already hold the lock.
	Acquire(ctx context.Context, h *Hold) (Answer, error)

	// Release lowers the owner's holds to h.Count. With zero it frees the lock, wakes a
	// waiter, and removes the owner from any queue of the store; see also [Hold.Keep]. With
	// more, what is left has h.TTL from then; a writer's lock is not shortened. held is false
	// if the store had no hold of this owner.
	Release(ctx context.Context, h *Hold) (held bool, err error)

	// Subscribe calls notify with every [Notice] for a waiter for the hold. It returns
	// once the subscription is confirmed, so that an attempt made afterwards misses
	// nothing. notify must not block. Of h count its Kind and its Name; with KindFair also its
	// Owner, and with KindMutex the Owner's client, to which grants are sent; see [ClientOf].
	// Subscriptions for which these are equal get the same notices.
	Subscribe(ctx context.Context, h *Hold, notify func(Notice)) (Subscription, error)

	// Announce stores a record of the client whose id begins its owners' names, for
	// inspection. The record lives at least ttl.
	Announce(ctx context.Context, c Client, ttl time.Duration) error

	// Close releases what the store itself opened.
	Close() error
}

// Client describes a locker, for the inspection of locks.
type Client struct {
	// ID begins the names of its owners; see [ClientOf].
	ID string
	// Host, Process and PID identify the process; Process is a file name without its
	// directory.
	Host    string
	Process string
	PID     int
	// Label is what the process says of itself, lock.Config.Label; empty if nothing.
	Label string
	// Since is when the locker was created.
	Since time.Time
}
