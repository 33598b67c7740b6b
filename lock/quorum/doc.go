// Package quorum makes one [driver.Store] of several independent ones, by the rules of
// Redlock: an owner holds a lock if a majority of the nodes has granted it. The store
// works while a minority of the nodes is down, unresponsive or cut off.
//
//	store, err := quorum.New([]lock.Store{a, b, c, d, e}, quorum.Config{})
//	locker, err := lock.New(store, lock.Config{TTL: 10 * time.Second})
//
// # What it does
//
// Every request goes to all nodes at once. Each node has [Config.NodeTimeout] to answer,
// and the result is known as soon as a majority has made it certain. A grant counts from
// the instant before the first node was asked. A failed acquisition releases the grants
// of its minority at once, whether or not its caller still waits, and again until the
// node has confirmed it. A request that reaches a node after that has no effect. Renewals
// go to each node in one batch, and extend a lease if a majority does so in time. A
// renewal also restores a lease at a node that has lost it or never had it, as long as
// the lease has its majority without that node.
//
// # What must be true of the nodes
//
// They must be independent of each other: a replica of a node does not count as a node,
// nor does the same server under another address. A server under several names has one
// vote, and acquisitions fail with [ErrSameServer] once that has been detected. For that all
// nodes on Redis use the same database number, Prefix and Format. Each may be a server, a
// sentinel's master or a cluster. Their clocks need not agree, but must run at rates at most 1 % apart.
//
// A node must not lose data: a node that restarts empty may be part of a second majority
// while the first holder is still at work, and so may one whose clock was set forward. Keep
// a node that has lost its data away from its clients for the longest TTL in use, or make it
// write each change to disk. This package shortens that time, since the next renewal restores
// the lease at the node, but does not eliminate it.
//
// # Fencing
//
// Each node counts tokens of its own, and the largest of a majority's tokens does not
// grow by itself: the majority of the next grant may lack the node with the highest
// count. So a majority of the nodes, out of those that granted, has the grant's token as
// its count before the grant is returned. Any later majority then includes a node that
// continues from there, so the token of every grant is larger than that of every earlier
// one, independently of clocks.
//
// An acquisition proposes a token to the nodes (see [driver.Fencer]), a little ahead of
// their clocks. A majority that gives it needs one round trip. Otherwise the largest
// token is written back in a second one (see [driver.Fencer]): for the first grant of a store,
// after a request that arrived 10 ms later than usual, after a step of a clock, with nodes
// that ignore proposals (as plain locks do), and around grants of a node whose clock is
// half a second from the others'. The masters of a cluster count as one clock.
//
// The guarantee depends on the counters. Once a single node that a token was written to
// has lost it (its data, or the counter by its own TTL), a later majority may include no
// other of these nodes. Tokens then grow by the nodes' clocks alone: a grant that was
// requested after an earlier one has a larger token if it comes later by more than the
// difference between the nodes' clocks, and the second at most by which a proposal may be
// ahead of them. One that was requested before may have a smaller token. A node that restarted
// empty receives the token again with the lease. The same applies to all grants if a node
// is no driver.Fencer, or with [Config.LooseTokens].
//
// # Nodes of different engines
//
// The nodes may be of several engines, such as two servers of Redis and one of PostgreSQL: a
// fault of one product then stops one node. What is said above holds for the mix, with the
// weakest node's promise where they differ: a node must not lose data, so a server of PostgreSQL
// with synchronous_commit=off, or one of Redis without appendfsync=always, is one that may.
//
// Redis, PostgreSQL, files and memory count tokens alike, by their clocks in µs, and are
// Fencers: the guarantee holds in any mix of them, and the tokens of a grant continue those
// that a single one of them has given. [New] refuses plain locks without PlainTokens in a mix.
// The tokens of etcd are revisions, which no other server can raise. With a minority of etcd
// nodes all tokens grow by the other nodes' clocks, as described above; [New] refuses more of them,
// unless tokens are never compared.
//
// A node that notices the loss of leases, as one on etcd does, has all leases renewed at once. The
// shortest lease of the granting nodes counts: etcd rounds TTLs down to whole seconds.
// A waiter is woken by the messages of the engines that have them; if one of the refusing nodes
// sends none (a store that polls), it polls. A server of PostgreSQL has one vote, but two
// databases or schemas of one server are not detected by acquisitions, only by [Store.Check].
//
// # Moving a fleet
//
// A fleet moves from one set of nodes to another without a stop by configurations of which any
// two neighbours differ by one node: of n and n+1 nodes any two majorities share one, since
// n/2+1 and (n+1)/2+1, rounded down, are n+2 together. [Config.Move] accepts the even numbers on the
// way. Every process has the next configuration, and leases of the one before the last have ended,
// before any process goes a step further. So a fleet moves from a single store to another through
// both: a store alone, a quorum of the two, the other store alone. Two configurations that replace
// a node may exclude nothing: of the nodes a, b, c a majority is a and c, of a, b, d it is b and
// d. The same is true of a single store and three with it: two of the three lack it.
//
// The tokens of a lock continue if it is granted in each configuration. Those of a lock that
// was not wanted in between grow by the nodes' clocks. On etcd alone they begin anew, and smaller:
// a move from etcd continues them, one to etcd does not. docs/operating.md has the steps.
//
// # Kinds of lock
//
// Mutexes keep their meaning. [Store.Supports] refuses the others, which do not:
//
//   - A fair lock's queue would differ between nodes. When the heads differ, no waiter
//     is granted a majority, and none may overtake.
//   - Readers that hold a read-write lock together share one fencing token. Nodes that
//     count independently give them different ones.
//   - A semaphore's permits multiply: five nodes with three permits each have fifteen
//     votes, enough for five holders with a majority of three. Overlapping majorities
//     exclude only where the limit is one holder.
package quorum

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Majorities: acquire.go, votes.go, names.go, fence.go, proposal.go, same_server.go, config.go, errors.go.
// Tests: votes_test.go, faults_test.go, dead_test.go, idle_test.go, exclusion_test.go, move_test.go, token_test.go, same_server_test.go, store_test.go.
// Planted: 30, 31, 64, 174, 212, 214, 226, 232, 233, 295, 330, 349, 433, 436, 437, 490, 538, 563, 672, 674.
//
// What wakes a quorum's waiter: subscription.go, own_release.go.
// Tests: store_test.go, move_test.go.
// Planted: 39, 61, 234, 274, 459, 557.
//
// What a quorum releases later: grants.go, cleanup.go, release.go.
// Tests: late_test.go, faults_test.go, cleanup_test.go, store_test.go.
// Planted: 32, 33, 62, 88, 213, 219, 307, 352, 354, 375, 376, 377, 434, 438, 671, 673.
//
// Renewals: renewal.go, poll.go.
// Tests: renewal_test.go, alarm_test.go, token_test.go, store_test.go, poll_test.go.
// Planted: 215, 262, 435, 458.
