package driver

import "time"

// Verdict is the result of an acquisition.
type Verdict uint8

const (
	// Refused: another owner holds the lock, or the store leaves it to others for a while.
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
	// lock together, such as readers, share a token. It is 0 from a store that counts none.
	Token int64
	// Reserved is the number of tokens after Token that are reserved for this owner. It may
	// give them to successive holders of its own.
	Reserved int64
	// Lease is, with Granted, how long the store keeps the hold. Zero: for the TTL as requested.
	// A store that counts in steps rounds the TTL down to one, and refuses a TTL that is too short
	// for it by an error that matches [ErrUnsupported].
	Lease time.Duration
	// First is, with Granted, how long the store keeps the hold until its first renewal, if that
	// is less than Lease: a store may have begun the lease before the request, for several holds
	// together. Zero: for Lease.
	First time.Duration
	// Wait is, with Refused, after which time another request may succeed without a [Notice]:
	// how long the current holder's lease lasts unless it is renewed, of several holders the
	// one that ends first, or for how long a free lock is left to others. Zero or less: unknown.
	Wait time.Duration
	// Foreign is set, with Refused, if something other than a lock of this format uses
	// the name. Its release sends no [Notice].
	Foreign bool
	// OtherKind is set, with Refused, if a lock of this format but of a kind that does not
	// share names with the requested one uses the name. Its release may send no [Notice]. It is
	// optional: a store that does not know the kind may set Foreign instead.
	OtherKind bool
	// Silent is set, with Refused, if the lock's release sends no [Notice], because its
	// holder's library polls. The waiter then polls, too.
	Silent bool
	// More is set, with Granted, if the store would also grant the lock to another owner.
	// The next waiter should then send its request.
	More bool
	// Behind is set, with Refused, if other waiters come first. The holder's TTL then
	// does not predict this waiter's turn.
	Behind bool
	// Unfinished is set, with Refused, if the store bounds its work for one request and has not
	// examined all that may be dead: many waiters of a free lock, or holders. The same request,
	// sent again, goes on.
	Unfinished bool
	// At is, with Refused, when the store enqueued the owner or found it in its queue; see
	// [Notice]. Zero: it has no place. Any clock will do, the server's or this client's:
	// only its order and its difference to [Notice.At] count.
	At time.Time
}
