package driver

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
	// [Semaphore.Permits] of them and has no lease: it is never renewed.
	KindSemaphore
	// KindPermit is a permit, or several at once, of the semaphore whose permits expire.
	KindPermit
	// KindLatch is the countdown latch. A hold is granted while the count is zero, and
	// takes nothing.
	KindLatch
	unknown // and every number beyond it
)

// kinds are the names of the kinds, in full and in one word.
var kinds = [...]struct{ name, word string }{
	KindMutex:     {"mutex", "mutex"},
	KindFair:      {"fair lock", "fair"},
	KindRead:      {"read lock", "read"},
	KindWrite:     {"write lock", "write"},
	KindSemaphore: {"semaphore", "semaphore"},
	KindPermit:    {"expiring permit", "permits"},
	KindLatch:     {"countdown latch", "latch"},
	unknown:       {"unknown", "unknown"},
}

func (k Kind) String() string { return kinds[min(k, unknown)].name }

// Word is the name of a kind in one word, as the command and stores use it.
func (k Kind) Word() string { return kinds[min(k, unknown)].word }
