package driver

import (
	"context"
	"iter"
	"time"
)

// Info is the state of one lock at one instant. It may have changed by the time it is
// read.
type Info struct {
	// Name is the lock's name.
	Name string
	// Kind is the kind of lock, as far as its data shows it. A fair lock without waiters
	// looks like a mutex. Kind has no meaning if the lock has no holders and no waiters.
	// On Redis the data of semaphores and latches is a plain number, which has the kind by
	// which it is inspected. Expiring permits are recognized by their ids, while some are in
	// use.
	Kind Kind
	// Foreign is the type of the value under the name, such as "string", if the value is
	// not a lock of this format. Otherwise it is empty.
	Foreign string

	// Count is the number under the name, if Counted. For a semaphore it is the number of
	// available permits, including expired ones. For a latch it is how often it must
	// still be counted down. If Foreign is "string", the meaning of the number is
	// unknown. Counted is false if there is no number.
	Count   int64
	Counted bool

	// Holders are the holders of the lock or of expiring permits, in the order of their
	// owners' names, at most [MaxTold] of them. HolderCount is the number of all. The
	// holders of a semaphore whose permits do not expire are unknown.
	Holders     []Holder
	HolderCount int64
	// TTL is how long the last of the leases, or the foreign value, lasts unless it is
	// renewed. Zero: there is none, or it never expires.
	TTL time.Duration

	// Waiters are the waiters in their order, at most [MaxTold] of them. They are those
	// in the queue of a fair lock, and those in the queue of a mutex: one for each
	// lock.Locker with waiters. WaiterCount is the number of all. A semaphore or a latch
	// has no list of waiters; there, WaiterCount is the number of subscribed clients. The
	// waiters of other locks are unknown.
	Waiters     []Waiter
	WaiterCount int64

	// Token is the latest fencing token. Zero: there is none, or its record has expired.
	Token int64
}

// MaxTold is the maximum number of Holders, and of Waiters, in an [Info].
const MaxTold = 100

// Held reports whether the lock has a holder.
func (i *Info) Held() bool { return i.HolderCount > 0 }

// Holder is one owner that holds a lock.
type Holder struct {
	// Owner is the owner, as in [Hold.Owner]; for a permit, its id. The owners of other
	// clients may have any form: control characters are escaped, and texts of more than
	// 512 bytes are shortened.
	Owner string
	// Write is set if the holder has the exclusive side of a read-write lock. The same
	// holder may be listed again for the shared side.
	Write bool
	// Holds is the holder's hold count.
	Holds int64
	// TTL is how long its lease lasts unless it is renewed. Each reader has its own.
	// Zero: it never expires.
	TTL time.Duration
	// Since is when the lock was granted, by the store's clock. Zero: unknown, as for
	// clients of other libraries.
	Since time.Time
	// Client is the client of the owner. If the client has not announced itself, or the part
	// of the store with its record does not answer, only its ID is known and the other fields
	// are zero. The client of a permit is unknown.
	Client Client
}

// Waiter is one owner in the wait queue of a lock.
type Waiter struct {
	// Owner is the owner that will hold the lock.
	Owner string
	// Since is when the owner was enqueued, by the store's clock. Zero: unknown, as in
	// the queue of a fair lock.
	Since time.Time
	// TTL is how long its place is kept without another request. Zero or less: the waiter
	// is skipped when its turn comes.
	TTL time.Duration
	// Client is the client of the owner; see [Holder].
	Client Client
}

// Inspector is a [Store] that can inspect its locks and release them by force. Like the
// methods of Store, its methods send every request once.
type Inspector interface {
	// Inspect returns the state of one lock. A free lock yields no holders. as is
	// KindSemaphore, KindPermit or KindLatch for a name known to be one. Otherwise it is
	// KindMutex, and the data shows the kind. A store that records the kind of each lock
	// reports that, whatever as is.
	Inspect(ctx context.Context, name string, as Kind) (Info, error)

	// List yields every held lock whose name begins with prefix and is wanted, each once.
	// A lock that is taken or freed during the iteration may be missing. An error comes
	// with an Info without a name and means that locks may be missing. If the caller
	// continues, List continues with the rest. Parts of the store that fail alone are read at
	// once, so wanted may be called concurrently.
	List(ctx context.Context, prefix string, wanted func(name string) bool) iter.Seq2[Info, error]

	// ForceRelease frees a lock, regardless of its holder and hold count, and wakes its
	// waiters. It returns the lock's previous state, read in the same instant. A value
	// that is not a lock of this format is left alone. Owners may have any form.
	ForceRelease(ctx context.Context, name string) (Info, error)
}
