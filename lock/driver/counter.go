package driver

import (
	"context"
	"time"
)

// Counter is a [Store] that keeps the counts of semaphores and latches. Like the methods
// of Store, its method sends every request once.
//
// Waiters and leases use a [Hold] as everywhere else. Counter reads and changes counts.
type Counter interface {
	// Count executes a request. A request that changes the count is applied once, however
	// often it is sent within c.Keep.
	Count(ctx context.Context, c *Count) (Counted, error)
}

// CountOp is an operation of a [Counter].
type CountOp uint8

const (
	// CountRead changes nothing.
	CountRead CountOp = iota
	// CountCreate sets the count to N, unless the name is in use.
	CountCreate
	// CountAdd adds N, which may be negative. With [KindLatch] it counts down a latch
	// above zero, and a latch that reaches zero is deleted.
	CountAdd
	// CountDrain takes all available permits.
	CountDrain
	// CountDelete removes the count.
	CountDelete
	// CountSet sets the count of [KindPermit] to N minus the permits in use.
	CountSet
	// CountForget shortens the memory of the requests in Forget, of acquisitions and
	// releases of [KindSemaphore], to Keep from now. The count stays as it is.
	CountForget
)

// Count is one request to a [Counter]. A store reads it and never changes it.
type Count struct {
	// Kind is KindSemaphore, KindPermit or KindLatch.
	Kind Kind
	// Name is the lock's name; [ValidateName] has accepted it.
	Name string
	Op   CountOp
	N    int64
	// TTL is, with CountCreate, how long the count lasts. Zero: it never expires.
	TTL time.Duration
	// Request identifies the request among all clients. It is the same in every attempt.
	Request string
	// Keep is how long the store remembers its reply to the request; with CountForget, those
	// to the requests in Forget.
	Keep time.Duration
	// Forget lists, with CountForget, owners whose requests were answered.
	Forget []string
}

// Counted is the reply of a [Counter].
type Counted struct {
	// Done reports whether the request changed something. An addition does not if the
	// count would leave the range of -[MaxCount] to [MaxCount].
	Done bool
	// Count is the count after the request; with CountDrain, the number of permits taken.
	// It is zero if there is no count.
	Count int64
	// Foreign is set if something other than a count uses the name.
	Foreign bool
}
