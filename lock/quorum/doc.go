// Package quorum makes one [lock.Store] of several that know nothing of each other,
// by the rules of Redlock: a lock is held by whom a majority of the nodes says it
// is. It goes on while a minority of them is down, mute or cut off.
//
//	store, err := quorum.New([]lock.Store{a, b, c, d, e}, quorum.Config{})
//	locker, err := lock.New(store, lock.Config{TTL: 10 * time.Second})
//
// # What it does
//
// Every request goes to all nodes at once, and each of them has
// [Config.NodeTimeout] to answer; the answer is known as soon as a majority has
// made it certain. A grant counts from the instant before the first node was asked.
// What an acquisition that failed was granted by a minority is given back at once,
// whether its caller still waits or not, and again until the node has confirmed it. A
// request that reaches a node after that changes nothing there. Renewals go to each node in one batch, and
// prolong a lease if a majority says so in time. A node that a lease has vanished
// from, or never was on, gets it again with the next renewal, as long as the lease
// has its majority without it.
//
// # What must be true of the nodes
//
// They must be independent of each other: a replica of a node is no node, nor is the
// same server by another address. One server under several names has one vote, and
// acquisitions fail with [ErrSameServer] once that has shown. All nodes use the same
// database number. They may each be a server, a sentinel's master or
// a cluster. Their clocks need not agree, but must run at rates at most 1 % apart.
//
// A node must not forget: one that restarts empty may be part of a second majority
// while the first holder is still at work. Keep a node that has lost its data away
// from its clients for the longest TTL in use, or have it write each change to disk.
// This package shortens that time, by giving the node the lease again at the next
// renewal, and does not end it.
//
// # Fencing
//
// Each node counts tokens of its own, and the largest of a majority's tokens does
// not grow by itself: the majority of the next grant may lack the node that counts
// highest. So the largest is written back before the grant is returned, to a
// majority of those who granted (see [Fencer]). Any later majority then has a node
// that starts from there, and the token of every grant is larger than that of every
// earlier one, by whatever clocks. It costs a second round trip.
//
// The promise ends where the counters do. Once a single one of the nodes that a token
// was written to has lost it (its data, or the counter by its own TTL), a later
// majority may have no other of them, and tokens grow by the nodes' clocks alone: a
// later grant has a larger token if it comes later by more than the clocks of the
// nodes are apart. A node that came back empty is given the token again with the lease.
// The same holds of all grants where a node is no Fencer, or with [Config.LooseTokens].
//
// # Kinds of lock
//
// Mutexes keep their meaning. Others do not, and are refused by [Store.Supports]:
//
//   - A fair lock's queue would be another on each node. When the first in line
//     differs, no waiter is granted a majority, and none may overtake.
//   - Readers that hold a read-write lock together share one fencing token. Nodes
//     that count on their own give them different ones.
//   - A semaphore's permits multiply: five nodes with three permits each have fifteen
//     votes, enough for five holders with a majority of three. Overlap of majorities
//     excludes only where one holder is the limit.
package quorum
