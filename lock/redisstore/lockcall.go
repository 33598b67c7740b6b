package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// newCall returns the call of a script.
func newCall(sc *transport.Script, keys []key, args ...any) *transport.Call {
	c := &transport.Call{Script: sc, Keys: make([]any, len(keys)), Args: args}
	for i := range keys {
		c.Keys[i] = (*string)(&keys[i])
	}
	return c
}

// lockCall is a call that acquires or releases one mutex, and all that it points at, in one
// object: making and collecting objects is a quarter of the client's time. It has copies, since
// the hold may change while a request for it is in flight.
type lockCall struct {
	transport.Call
	keyList [5]any
	argList [8]any

	at                  key
	owner               string
	derived             [4]key
	publish             string // see messages.publishing
	life, ttl, proposed int64  // life of the fencing counter and ttl in ms
}

// newLockCall returns a call without arguments. Its keys are the lock's and those that are
// derived from it by the prefixes.
func newLockCall(sc *transport.Script, r request, prefixes []string) *lockCall {
	c := &lockCall{at: r.at, owner: r.Owner, publish: r.publish, life: r.store.fenceMillis, ttl: r.TTL.Milliseconds(), proposed: r.token}
	derived := c.derived[:len(prefixes)]
	deriveEach(r.at, prefixes, derived)
	c.keyList[0] = (*string)(&c.at)
	for i := range derived {
		c.keyList[1+i] = (*string)(&derived[i])
	}
	c.Call = transport.Call{Script: sc, Keys: c.keyList[:1+len(prefixes)], Args: c.argList[:0]}
	return c
}
