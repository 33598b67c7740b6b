package driver

import (
	"context"
	"time"
)

// Fencer is a [Store] of mutexes that lets a store made of several make their fencing tokens
// agree, as package quorum does. It serves no other purpose.
type Fencer interface {
	// AcquireProposing is [Store.Acquire] of a mutex, which proposes the grant's token. The
	// grant gets it if it is larger than the last one and up to a second ahead of the store's
	// clock in µs. It is a multiple of 16. Zero: none. clock is the store's clock at the grant;
	// zero from a store that ignores proposals.
	AcquireProposing(ctx context.Context, h *Hold, token int64) (a Answer, clock time.Time, err error)

	// Fence raises the fencing counter of a lock to token at least, if the owner holds
	// the lock: the next grant then has a larger one. Otherwise it does nothing, and held
	// is false.
	Fence(ctx context.Context, h *Hold, token int64) (held bool, err error)
}
