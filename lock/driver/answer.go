package driver

import "time"

// Verdict is the result of an acquisition.
type Verdict uint8

const (
	// Refused: another owner holds the lock.
	Refused Verdict = iota
	// Granted: the owner has as many holds as requested.
	Granted
	// NotHeld: the owner requested a further hold but has none.
	NotHeld
)

// Answer is a store's reply to an acquisition.
type Answer struct {
	Verdict Verdict
	// Token is the fencing token of a grant. It is larger than that of every earlier
	// grant of the same name; further holds of the owner keep it. Only owners that hold a
	// lock together, such as readers, share a token.
	Token int64
	// Reserved is the number of tokens after Token that are reserved for this owner. It may
	// give them to successive holders of its own.
	Reserved int64
	// TTL is, with Granted, the time to live that the store chose; zero: as requested.
	// With Refused, it is how long the current holder's lease lasts unless it is renewed;
	// zero or less: unknown.
	TTL time.Duration
	// Foreign is set, with Refused, if something other than a lock of this format uses
	// the name. Its release sends no [Notice].
	Foreign bool
	// Silent is set, with Refused, if the lock's release sends no [Notice], because its
	// holder's library polls. The waiter then polls, too.
	Silent bool
	// More is set, with Granted, if the store would also grant the lock to another owner.
	// The next waiter should then send its request.
	More bool
	// Behind is set, with Refused, if other waiters come first. The holder's TTL then
	// does not predict this waiter's turn.
	Behind bool
	// At is, with Refused, the store's clock if the store has enqueued the owner for the
	// lock; see [Notice]. Zero: not enqueued.
	At time.Time
}
