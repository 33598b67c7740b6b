package idempotency

import (
	"bytes"
	"context"
	"time"
)

// Record is what is known of a key.
type Record struct {
	// Token is the fencing token of the attempt that has stored the record. A record that does
	// not exist has 0.
	Token int64
	// Fingerprint identifies the request. It is a hash.
	Fingerprint []byte
	// Reply is the reply of the handler, or empty: the attempt has not ended, or without one.
	Reply []byte
}

// Yields reports whether [Replies.Swap] replaces r by next: r has no reply and no larger token,
// and is of the same request.
func (r Record) Yields(next Record) bool {
	return r.Token == 0 || len(r.Reply) == 0 && r.Token <= next.Token && bytes.Equal(r.Fingerprint, next.Fingerprint)
}

// Replies stores the records. [NewMemory] has them in this process, and package redisreplies on
// Redis. Methods are called concurrently.
type Replies interface {
	// Load returns the record of a key, or the zero Record.
	Load(ctx context.Context, key string) (Record, error)
	// Swap stores next for the time keep, if the stored record yields to it, and returns the
	// record that was stored before, all in one atomic step. A key is a hash of 64 digits.
	Swap(ctx context.Context, key string, next Record, keep time.Duration) (previous Record, err error)
}
