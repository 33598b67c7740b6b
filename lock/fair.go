package lock

import "time"

// placeTTL is how long the store keeps a waiter's place in a fair lock's queue, or
// a writer's claim on a read-write lock, after it was asked last, so how long a
// waiter whose process died can hold up those behind it, once. A waiter asks three
// times in that time.
const placeTTL = 5 * time.Second

// Fair returns a handle on the fair lock called name: waiters get it in the order
// in which the store has heard of them, whichever process they are in, and nobody
// overtakes them, TryLock included. A waiter that gives up leaves the queue at
// once; one whose process died, or was stopped, is passed over after 5 s.
//
// A fair lock and a [Mutex] of the same name are the same lock, on which those
// who come by Mutex do not line up. They are not told when a fair lease is unlocked,
// either, and ask every [Config.Poll]. A waiter of a fair lock costs the store a
// channel and a request every 1.7 s; where order is nothing to you, use Mutex.
func (l *Locker) Fair(name string) *Mutex {
	return &Mutex{locker: l, kind: KindFair, name: name}
}
