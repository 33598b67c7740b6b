package lock

import "time"

// Info is what a store knows of one lock at one instant. By the time that it is
// read, it may have changed.
type Info struct {
	// Name is the lock's name.
	Name string
	// Kind is the kind of lock, as far as its data tell: a fair lock for which
	// nobody waits looks like a mutex. It says nothing where nobody holds or
	// awaits the lock. Semaphores and latches are numbers, which anybody may have:
	// they are told as such by their own Inspect methods, and expiring permits by
	// everybody's while some are in use, whose ids give them away.
	Kind Kind
	// Foreign is the type of the value that has the name, if that value is not a
	// lock of this format: "string", say. Otherwise it is empty.
	Foreign string

	// Count is, with Counted, the number that has the name: how many permits of a
	// semaphore are available, those included that have expired, or how often a
	// latch is to be counted down yet. Where Foreign is "string", nobody knows what
	// it counts. Counted is false where there is no number.
	Count   int64
	Counted bool

	// Holders are those who hold the lock, or an expiring permit each, at most
	// [MaxTold] of them, in the order of their owners' names. HolderCount is how many
	// there are. Of a semaphore whose permits do not expire nobody knows the holders.
	Holders     []Holder
	HolderCount int64
	// TTL is how long the last of the leases, or the foreign value, lasts unless
	// it is renewed. Zero: there is none, or it has no end.
	TTL time.Duration

	// Waiters are those who wait, in their order, at most [MaxTold] of them: those in
	// the queue of a fair lock, and those in the line of a mutex, one for each
	// [Locker] of leasewheel's. WaiterCount is how many there are; of a semaphore or a
	// latch, for whose waiters there is no list, it is how many clients listen for it.
	// Of the waiters for other locks nothing is known.
	Waiters     []Waiter
	WaiterCount int64

	// Token is the latest fencing token. Zero: there is none, or it is forgotten.
	Token int64
}

// MaxTold is how many holders, and how many waiters, an [Info] tells of by name.
const MaxTold = 100

// Held reports whether somebody holds the lock.
func (i *Info) Held() bool { return i.HolderCount > 0 }

// Holder is one owner that holds a lock.
type Holder struct {
	// Owner is the owner, as [Hold.Owner]: of a permit, its id.
	Owner string
	// Write says that it holds the exclusive side of a read-write lock. It may be
	// listed a second time, for the shared side.
	Write bool
	// Holds is how often it holds the lock.
	Holds int64
	// TTL is how long its lease lasts unless it is renewed; readers have one each.
	// Zero: it has no end.
	TTL time.Duration
	// Since is when the lock was granted to it, by the store's clock. Zero:
	// unknown, as for clients of other libraries.
	Since time.Time
	// Client is who the owner belongs to. Unless the client has announced itself
	// only its ID is known, and Since, which is when the client came up, is zero. A
	// permit tells nothing of its holder.
	Client Client
}

// Waiter is one owner in the queue, or in the line, for a lock.
type Waiter struct {
	// Owner is the owner that will hold the lock.
	Owner string
	// Since is when it has lined up, by the store's clock. Zero: unknown, as in the
	// queue of a fair lock.
	Since time.Time
	// TTL is how long its place is kept unless it asks again; zero or less if it
	// is passed over when its turn comes.
	TTL time.Duration
	// Client is who the owner belongs to; see [Holder].
	Client Client
}
