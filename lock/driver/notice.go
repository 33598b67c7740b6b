package driver

import "time"

// Notice is a message from the store to a waiter. The zero Notice means that another
// attempt may succeed. It is sent after a release, and after every gap in which a message
// may have been missed.
type Notice struct {
	// Owner is the owner to which a release has granted the lock, with Token and Reserved,
	// for TTL. The grant counts as if the owner had requested it again. Empty: none.
	Owner    string
	Token    int64
	Reserved int64
	TTL      time.Duration
	// At is when the grant was made, by the clock of [Answer.At]. It is before the At of
	// every later refusal. The time since an earlier refusal must not be overstated by more
	// than 1 %, since the lease counts from then; it may be understated, down to none.
	At time.Time
}

// Subscription is a subscription to the notices of a lock.
type Subscription interface {
	// Close ends the subscription, without waiting for the store. After it returns, notify is
	// not called any more. It is called once.
	Close()
}
