// Package idempotency is an HTTP middleware: a client that gets no reply repeats its request
// with the same Idempotency-Key, and the handler's effect happens once (the IETF draft "The
// Idempotency-Key HTTP Header Field").
//
//	once, err := idempotency.New(locker, idempotency.NewMemory(), idempotency.Config{})
//	mux.Handle("POST /orders", once(orders))
//
// A POST or PATCH holds a lock on its key while the handler works, in whatever process it
// arrives. The handler's reply is stored before it is sent, and answers every repetition, with
// the header "Idempotent-Replayed: true". Other methods pass. The middleware itself answers
//
//	400  the key is missing or malformed, or the body cannot be read
//	409  the first request is still in progress, or its process died less than a TTL of the lock
//	     ago; repeat it later
//	413  the body is larger than Config.MaxBody
//	422  the key was used for another request: method, target or body differ
//	500  the reply is larger than Config.MaxReply, or incomplete, the stored one is damaged, or the
//	     store of the locks has no fencing tokens
//	503  a store does not answer, or the lock was lost; repeat it later
//
// # What happens once
//
// A stored reply carries the lock's fencing token, so a process that was paused cannot store
// its own beside its successor's. But no middleware knows what a handler has done that was
// killed, or has lost its lock or its store, before its reply was stored. By default the repetition calls
// the handler again: let the effect and [Attempt.Key] be written in one transaction, or compare
// [Attempt.Token]. With [Config.Interrupted] the handler runs once at most, and that handler
// finds out what became of it.
//
// # The handler
//
// Its context has the values of the request's and ends with the lock, but not with the
// connection: the client that gave up repeats the request, and gets the reply. Let
// [lock.Options.MaxHold] bound it. Bodies are read whole, before; an outer handler that has read
// the body makes all bodies compare equal.
//
// The reply is held back until the handler returns: it cannot be flushed or hijacked, and
// [http.ResponseController] sets no deadlines. Its headers begin empty, get canonical names, and
// replace those of the same name that an outer handler has set; Vary and Set-Cookie are added.
// Headers of one connection, such as Connection, and trailers, are dropped.
//
// Replies of 500 and above, and 429, are sent but not stored, since they ask for a repetition; a
// panic stores none either. Any other that is larger than [Config.MaxReply], or smaller than its
// Content-Length, becomes a 500 that is stored: its effect has happened. Write reports no error then.
package idempotency

// Where a change goes, with its tests. A name without a folder is of this package.
// TestPlacesOfChanges in cmd/leasewheel compares the names with the code.
//
// Idempotent HTTP requests: middleware.go; the header: key.go; what is stored: record.go,
// memory.go, lock/idempotency/redisreplies/replies.go,
// lock/idempotency/redisreplies/swap.lua; the handler's reply: reply.go.
// Tests: middleware_test.go, differential_test.go, key_test.go, kill_real_test.go,
// lock/idempotency/redisreplies/replies_test.go.
// Planted: 252, 253, 254, 255, 286, 311, 313, 326, 368, 451, 562, 613.
