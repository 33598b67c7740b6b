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
