package lock

import (
	"context"
	"errors"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Kind is a kind of lock. A [Store] says which kinds it keeps.
type Kind uint8

const (
	// KindMutex is the reentrant lock: one owner, counted.
	KindMutex Kind = iota
	// KindFair is the reentrant lock whose waiters get it in their order of
	// arrival, across all clients.
	KindFair
	// KindRead is the shared side of a read-write lock.
	KindRead
	// KindWrite is the exclusive side of a read-write lock.
	KindWrite
	// KindSemaphore is the semaphore whose permits nobody owns. A hold takes
	// [Hold.Permits] of them and has no lease: it is never renewed.
	KindSemaphore
	// KindPermit is one permit of the semaphore whose permits expire.
	KindPermit
	// KindLatch is the countdown latch. A hold is granted while the count is zero,
	// and takes nothing.
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

// Hold is one ownership of one lock: what an acquisition asks for, what a
// renewal keeps alive (as [renewal.Lease.Ref]) and what a release ends. A store
// reads it and never changes it.
type Hold struct {
	Kind Kind
	// Name is the lock's name as the user gave it; it has passed [ValidateName].
	Name string
	// Owner identifies the ownership among all clients: "<uuid>:<int64>", or 32
	// hexadecimal digits with [KindPermit], followed by "*n" for n permits at once. It
	// is fresh for every acquisition and the same in every attempt of one.
	Owner string
	// Count is the number of holds that the owner has once the request is done.
	// It is absolute, so that a request whose reply was lost may be sent again.
	Count int64
	// TTL is how long the store keeps the hold without a renewal. With
	// [KindSemaphore] it is how long a request may be sent again: for twice that
	// time, the store remembers what it has done for the Owner, unless a later
	// request says in Forget that it need not.
	TTL time.Duration
	// Permits is, with [KindSemaphore], how many permits the hold is of. A release
	// gives them back if the store remembers that the Owner has taken them.
	Permits int64
	// Forget has, with [KindSemaphore], owners whose requests the store need not
	// remember any more: their answers have come.
	Forget []string
	// Owed says, with a release of [KindSemaphore], that somebody has taken the
	// permits, so that they are given back in any case, once for an Owner, unless the
	// count would exceed [MaxCount].
	Owed bool
	// Wait is how long a store that keeps a queue, as for [KindFair], keeps the
	// owner's place in it after each request; zero if the owner does not wait.
	// With [KindWrite] it is how long new readers are kept out after each request
	// that was refused because of readers; zero if they are not.
	// With [KindMutex], unless it is zero, the owner waits and has subscribed: a
	// store that can, grants it the lock when another owner releases it, and says
	// so by a [Notice]. A store that is made of others asks them with zero.
	Wait time.Duration
	// Offer is how long such a grant lasts, until the first renewal: the waiter may
	// have died. Zero: TTL.
	Offer time.Duration
	// Handed says, with a release, that the hold was such a grant. A store then
	// gives those their turn to whom it cannot grant the lock.
	Handed bool
	// Spare is, with [KindMutex], how many tokens after that of the grant the owner
	// would like to give out itself; see [Answer.Spare].
	Spare int64
	// Under is, with [KindRead], the owner of a write lock of the same name beside
	// which this one may read: the same holder's. Empty: none.
	Under string
}

// Verdict is a store's answer to an acquisition.
type Verdict uint8

const (
	// Refused: somebody else holds the lock.
	Refused Verdict = iota
	// Granted: the owner holds it, as often as asked.
	Granted
	// NotHeld: the owner asked for a further hold but has none left.
	NotHeld
)

// Answer is what a store says to an acquisition.
type Answer struct {
	Verdict Verdict
	// Token is the fencing token of a grant: larger than that of every earlier
	// grant of the same name, and kept by the owner's further holds. Only those
	// who hold a lock together, as readers do, share one.
	Token int64
	// Spare is how many of the tokens after Token nobody else will get: the owner
	// may have holders of its own, one after the other.
	Spare int64
	// TTL is, with Granted, the time to live that the store chose (zero: as
	// asked); with Refused, how long the present holder's lease runs on unless
	// it is renewed (zero or less: unknown).
	TTL time.Duration
	// Foreign says, with Refused, that something other than a lock of this
	// format has the name. Nobody will tell of its release.
	Foreign bool
	// Silent says, with Refused, that nobody will tell of the lock's release, as
	// clients of libraries that poll do not: whoever waits polls, too.
	Silent bool
	// More says, with Granted, that the store would grant the lock to another owner
	// as well, so that the next waiter should ask.
	More bool
	// Behind says, with Refused, that other waiters are served before this one,
	// so that the end of the holder's lease is nothing to it.
	Behind bool
	// At is, with Refused, the store's clock if the store has put the owner in line
	// for the lock; see [Notice]. Zero: it has not.
	At time.Time
}

// Notice is what a store tells a waiter. The zero Notice says that an acquisition
// is worth another attempt: after a release, and after every gap in which something
// may have been missed.
type Notice struct {
	// Owner is whom a release has granted the lock, as if it had asked once more,
	// with Token and Spare, for TTL. Empty: nobody.
	Owner string
	Token int64
	Spare int64
	TTL   time.Duration
	// At is when, by the clock that [Answer.At] was read from. The difference of
	// the two says how long after its request the owner was granted the lock.
	At time.Time
}

// ErrNotDone is matched by those errors of a [Store] that come with the assurance
// that the request has changed nothing and will not. After any other error the
// store may have done what was asked, or may yet do it.
var ErrNotDone = errors.New("lock: the store has done nothing")

// Store keeps holds. Its methods may be called at the same time.
//
// A store tries every request once and never again by itself: the lock package
// decides what is sent again, since it alone knows what is then ambiguous. An
// error that may pass by itself matches [ErrUnavailable], one that certainly had no
// effect [ErrNotDone]. Requests are bounded by their context, whose values they
// may use.
//
// A request that is carried out later than a second after its context's deadline
// changes nothing. Every request of package lock has a deadline. So when the outcome
// of a request is unknown, a release that is sent a second after the request's
// deadline, and is confirmed, leaves nothing of it. A store may keep this promise by a
// deadline that the server checks; then it does not hold across a server's clock that
// is set back meanwhile.
//
// A kind of lock is a value of [Kind] and its own fields in [Hold], not a method
// of Store, so that a store made of other stores, or a new kind, is an addition.
type Store interface {
	// Renewer renews holds for the watchdog. Each lease's Ref is its *[Hold].
	renewal.Renewer

	// Supports returns nil if the store keeps locks of this kind, and otherwise
	// an error that matches [ErrUnsupported] and gives the reason.
	Supports(Kind) error

	// Acquire asks for the hold. It grants as well what the owner already has,
	// with a fresh TTL, so an acquisition whose reply was lost may be sent again.
	// With Count > 1 the owner must hold the lock already.
	Acquire(ctx context.Context, h *Hold) (Answer, error)

	// Release lowers the owner's holds to h.Count. With zero it gives the lock
	// back, wakes a waiter, and takes the owner out of a queue that the store
	// keeps. held is false if the store knew no hold of this owner.
	Release(ctx context.Context, h *Hold) (held bool, err error)

	// Subscribe has tell called with whatever there is to tell a waiter for the
	// hold. It returns once the store has confirmed that it will, so that an
	// attempt made afterwards misses nothing. Waiters of one client for one lock
	// may share a subscription. tell must not block.
	Subscribe(ctx context.Context, h *Hold, notify func(Notice)) (Subscription, error)

	// Announce records who the client is whose id begins its owners' names, for
	// people who ask who holds a lock. The record lives at least ttl.
	Announce(ctx context.Context, c Client, ttl time.Duration) error

	// Close gives back what the store opened itself.
	Close() error
}

// Subscription is an interest in the releases of a lock.
type Subscription interface {
	// Close ends it. Nothing is told once Close has returned.
	Close()
}

// Client says who a locker is, for people who ask who holds a lock.
type Client struct {
	// ID is the part of an owner before the colon.
	ID string
	// Host, Process and PID say where it runs; Process is a file name without
	// its directory.
	Host    string
	Process string
	PID     int
	// Since is when the locker was made.
	Since time.Time
}
