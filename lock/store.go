package lock

import (
	"context"
	"errors"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Kind is a kind of lock. [Store.Supports] reports which kinds a store supports.
type Kind uint8

const (
	// KindMutex is the reentrant lock: one owner, with a hold count.
	KindMutex Kind = iota
	// KindFair is the reentrant lock that is granted in order of arrival, across all
	// clients.
	KindFair
	// KindRead is the shared side of a read-write lock.
	KindRead
	// KindWrite is the exclusive side of a read-write lock.
	KindWrite
	// KindSemaphore is the semaphore whose permits have no owner. A hold takes
	// [Hold.Permits] of them and has no lease: it is never renewed.
	KindSemaphore
	// KindPermit is a permit of the semaphore whose permits expire.
	KindPermit
	// KindLatch is the countdown latch. A hold is granted while the count is zero, and
	// takes nothing.
	KindLatch
)

func (k Kind) String() string {
	switch k {
	case KindMutex:
		return "mutex"
	case KindFair:
		return "fair lock"
	case KindRead:
		return "read lock"
	case KindWrite:
		return "write lock"
	case KindSemaphore:
		return "semaphore"
	case KindPermit:
		return "expiring permit"
	case KindLatch:
		return "countdown latch"
	}
	return "unknown"
}

// Hold is one ownership of one lock. An acquisition requests it, a renewal extends it (as
// [renewal.Lease.Ref]) and a release ends it. A store reads it and never changes it.
type Hold struct {
	Kind Kind
	// Name is the lock's name as the user gave it; [ValidateName] has accepted it.
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
	// Owed is set in a release of [KindSemaphore] if the permits were certainly taken.
	// The store then returns them in any case, once for each Owner, unless the count
	// would exceed [MaxCount].
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
	// Offer is the provisional TTL of a grant by release, until the first renewal: the
	// waiter may have died. Zero: TTL.
	Offer time.Duration
	// Handed is set in a release if the hold was granted by another owner's release. The
	// store then leaves the lock to waiting clients that are not in its queue, if there
	// are any.
	Handed bool
	// Spare is the number of further tokens that the owner asks to reserve, with
	// [KindMutex]. See [Answer.Spare].
	Spare int64
	// Under is, with [KindRead], the owner of a write lock of the same name that belongs
	// to the same holder, so that this owner may read beside it. Empty: none.
	Under string
}

// Verdict is the result of an acquisition.
type Verdict uint8

const (
	// Refused: another owner holds the lock.
	Refused Verdict = iota
	// Granted: the owner has as many holds as requested.
	Granted
	// NotHeld: the owner requested a further hold but has none.
	NotHeld
)

// Answer is a store's reply to an acquisition.
type Answer struct {
	Verdict Verdict
	// Token is the fencing token of a grant. It is larger than that of every earlier
	// grant of the same name; further holds of the owner keep it. Only owners that hold a
	// lock together, such as readers, share a token.
	Token int64
	// Spare is the number of tokens after Token that are reserved for this owner. It may
	// give them to successive holders of its own.
	Spare int64
	// TTL is, with Granted, the time to live that the store chose; zero: as requested.
	// With Refused, it is how long the current holder's lease lasts unless it is renewed;
	// zero or less: unknown.
	TTL time.Duration
	// Foreign is set, with Refused, if something other than a lock of this format uses
	// the name. Its release sends no [Notice].
	Foreign bool
	// Silent is set, with Refused, if the lock's release sends no [Notice], because its
	// holder's library polls. The waiter then polls, too.
	Silent bool
	// More is set, with Granted, if the store would also grant the lock to another owner.
	// The next waiter should then send its request.
	More bool
	// Behind is set, with Refused, if other waiters come first. The holder's TTL then
	// does not predict this waiter's turn.
	Behind bool
	// At is, with Refused, the store's clock if the store has enqueued the owner for the
	// lock; see [Notice]. Zero: not enqueued.
	At time.Time
}

// Notice is a message from the store to a waiter. The zero Notice means that another
// attempt may succeed. It is sent after a release, and after every gap in which a message
// may have been missed.
type Notice struct {
	// Owner is the owner to which a release has granted the lock, with Token and Spare,
	// for TTL. The grant counts as if the owner had requested it again. Empty: none.
	Owner string
	Token int64
	Spare int64
	TTL   time.Duration
	// At is the time of the grant, by the same clock as [Answer.At]. The difference is
	// the time from the owner's request to its grant.
	At time.Time
}

// ErrNotDone is matched by errors of a [Store] if the request has changed nothing and
// will change nothing. After any other error, the request may have been applied, or may
// be applied later.
var ErrNotDone = errors.New("lock: the store has done nothing")

// Store is the storage of locks, such as Redis. Its methods are safe for concurrent use.
//
// A store sends every request once and never repeats it. Package lock decides what to
// repeat, because only it knows what is ambiguous then. A transient error matches
// [ErrUnavailable]; an error of a request that certainly had no effect matches
// [ErrNotDone]. Requests are bounded by their context, whose values they may use.
//
// A request that is applied later than one second after its context's deadline must
// change nothing. Every request of package lock has a deadline. So if a request's outcome
// is unknown, a release that is sent one second after that deadline, and is confirmed,
// leaves nothing of the request. A store may implement this with a deadline that the
// server checks. The guarantee then fails if a server's clock is set back in the
// meantime.
//
// A kind of lock is a value of [Kind] with its own fields in [Hold], not a method of
// Store. New kinds, and stores made of other stores, therefore need no new methods.
type Store interface {
	// Renewer renews holds for the watchdog. The Ref of each lease is its *[Hold].
	renewal.Renewer

	// Supports returns nil if the store supports locks of this kind. Otherwise it returns
	// an error that matches [ErrUnsupported] and gives the reason.
	Supports(Kind) error

	// Acquire requests the hold. A hold that the owner already has is granted again, with
	// a new TTL, so an acquisition whose reply was lost can be sent again. With Count > 1
	// the owner must already hold the lock.
	Acquire(ctx context.Context, h *Hold) (Answer, error)

	// Release lowers the owner's holds to h.Count. With zero it frees the lock, wakes a
	// waiter, and removes the owner from any queue of the store. held is false if the
	// store had no hold of this owner.
	Release(ctx context.Context, h *Hold) (held bool, err error)

	// Subscribe calls notify with every [Notice] for a waiter for the hold. It returns
	// once the subscription is confirmed, so that an attempt made afterwards misses
	// nothing. Waiters of one client for one lock may share a subscription. notify must
	// not block.
	Subscribe(ctx context.Context, h *Hold, notify func(Notice)) (Subscription, error)

	// Announce stores a record of the client whose id begins its owners' names, for
	// inspection. The record lives at least ttl.
	Announce(ctx context.Context, c Client, ttl time.Duration) error

	// Close releases what the store itself opened.
	Close() error
}

// Subscription is a subscription to the notices of a lock.
type Subscription interface {
	// Close ends the subscription. After it returns, notify is not called any more.
	Close()
}

// Client describes a locker, for the inspection of locks.
type Client struct {
	// ID is the part of an owner before the colon.
	ID string
	// Host, Process and PID identify the process; Process is a file name without its
	// directory.
	Host    string
	Process string
	PID     int
	// Since is when the locker was created.
	Since time.Time
}
