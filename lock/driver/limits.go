package driver

import (
	"math"
	"time"
)

// Limits of what package lock requests.
const (
	// DefaultTTL is the TTL of a hold unless the user chooses another.
	DefaultTTL = 30 * time.Second
	// MaxTTL is the maximum of a TTL that the user chooses.
	MaxTTL = 365 * 24 * time.Hour
	// MaxName is the maximum length of a name in bytes.
	MaxName = 512
	// MaxCount is the maximum of a count: the permits of a semaphore, or a latch's count.
	// Other libraries read no more.
	MaxCount = math.MaxInt32
	// MaxSeveral is the maximum number of permits of one hold of [KindPermit].
	MaxSeveral = 100
	// MaxPasses is the maximum number of tokens that a hold reserves; see [Queue].
	MaxPasses = 1_000_000
	// MaxLateness is how long after its context's deadline a request may still be
	// applied; see [Store].
	MaxLateness = time.Second
)
