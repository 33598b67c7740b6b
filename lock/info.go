package lock

import "time"

// Info is what a store knows of one lock at one instant. By the time that it is
// read, it may have changed.
type Info struct {
	// Name is the lock's name.
	Name string
	// Kind is the kind of lock, as far as its data tell: a fair lock for which
	// nobody waits looks like a mutex. It says nothing where nobody holds or
	// awaits the lock.
	Kind Kind
	// Foreign is the type of the value that has the name, if that value is not a
	// lock of this format: "string", say. Otherwise it is empty.
	Foreign string

	// Holders are those who hold the lock, at most [MaxTold] of them, in the order
	// of their owners' names. HolderCount is how many there are.
	Holders     []Holder
	HolderCount int64
	// TTL is how long the last of the leases, or the foreign value, lasts unless
	// it is renewed. Zero: there is none, or it has no end.
	TTL time.Duration

	// Waiters are those whom the store keeps in a queue for the lock, as for a
	// fair lock, in their order, at most [MaxTold] of them. WaiterCount is how
	// many there are. Of the waiters for other locks the store has no list.
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
	// Owner is the owner, as [Hold.Owner].
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
	// only its ID is known, and Since, which is when the client came up, is zero.
	Client Client
}

// Waiter is one owner in the queue for a lock.
type Waiter struct {
	// Owner is the owner that will hold the lock.
	Owner string
	// TTL is how long its place is kept unless it asks again; zero or less if it
	// is passed over when its turn comes.
	TTL time.Duration
	// Client is who the owner belongs to; see [Holder].
	Client Client
}
