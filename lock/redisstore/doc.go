// Package redisstore stores locks on Redis, in the wire format of Redisson. Go and Java
// services share the same locks, exclude each other and wake each other.
//
// # What is on the server
//
// The lock called orders:42 is
//
//	orders:42                                hash  {"<client uuid>:<number>": holds}, with the lease as its TTL
//	redisson_lock__channel:{orders:42}       channel; a release publishes "0"
//	redisson_lock_token:{orders:42}          fencing counter, the largest token granted
//	leasewheel:client:{<client uuid>}        hash of host, process, pid, since; one for each locker
//
// While clients of leasewheel wait for the lock, it also has
//
//	leasewheel_lock_line:{orders:42}         wait queue: zset of "<owner> <ms> <tokens> <secret>", one for each client, by arrival in µs (Unix time)
//	leasewheel_lock__channel:{orders:42}     channel to which all of them subscribe; it carries no messages
//	leasewheel_lock__channel:{orders:42}:…   channel of each, by its uuid; a release publishes the grant to the next owner there
//	leasewheel_lock_turns:{orders:42}        hash: when the lock is left to clients that poll
//
// A fair lock of that name is the same hash. While owners wait, it also has
//
//	redisson_lock_queue:{orders:42}          list of waiting owners, in their order of arrival
//	redisson_lock_timeout:{orders:42}        zset of them, each with the ms (Unix time) after which Redisson drops it
//	leasewheel_lock_places:{orders:42}       zset of those of leasewheel, each with the ms after which it counts as dead
//	redisson_lock__channel:{orders:42}:…     channel of each of them, by its owner; a release publishes "0" to the first's
//
// A semaphore of that name, one whose permits expire, and a latch are
//
//	orders:42                                string, the number of available permits, or the count of the latch
//	redisson_sc:{orders:42}                  channel; added permits publish the number available, or the number added
//	{orders:42}:timeout                      zset of expiring permits in use: 16 bytes, ours with the client's first 12, and the ms (Unix time) at which each expires
//	redisson_countdownlatch__channel__{orders:42}
//	                                         channel; the count zero publishes "0", as a deletion does, a new count "1"
//	leasewheel_request:{orders:42}:…         string, the outcome of a request without an owner; for 16 s, see [driver.Count]; for an hour, see [driver.Hold], unless the client gets the answer: then for 7 s at most
//
// Expiring permits have a fencing counter, too. They expire by the server's clock, while
// clients of Redisson use their own clocks. The instants move with the key: on a master, or
// a promoted replica, whose clock is ahead they come earlier by the difference.
//
// If a latch's name holds a hash tag, like {user:7}:cart, the channel has the whole name
// in another pair of braces. In a cluster that is another slot, so Redisson cannot keep
// such a latch there. leasewheel can, on a channel without the extra braces.
//
// If a lock's name holds a hash tag, like {user:7}:cart, the derived keys use that tag
// and end in the bare name. So all keys of one lock are on one server of a cluster.
//
// # Plain locks
//
// With [FormatPlain] a lock is a string, as in redsync and redislock. A fleet that uses
// one of them can migrate lock by lock, or service by service:
//
//	orders:42                                string: the owner, with the lease as its TTL
//	redisson_lock__channel:{orders:42}       channel; leasewheel's releases publish "0"
//	redisson_lock_token:{orders:42}          fencing counter, as above, with Config.PlainTokens
//	leasewheel_lock_turns:{orders:42}        hash: when a contended lock is left to peers
//
// A plain lock has one owner, so it is a mutex. Only the owner's process knows how often
// the owner holds it. The watchdog, loss and reentrancy work as for any mutex. Three
// promises are weaker:
//
//   - Peers do not publish their releases. While one of them holds the lock, a waiter asks
//     every 60 to 180 ms.
//   - Peers poll. A lock that goes from one of our waiters to the next is left to peers
//     for 250 ms every second, or every ten seconds if no peer was seen for ten minutes.
//     Within that time an acquisition is refused although the lock is free.
//   - There are no fencing tokens, unless [Config.PlainTokens] asks for them. Peers take
//     none: our tokens grow from one of our grants to the next, but a resource that checks
//     them cannot recognise a peer's write.
//
// A key of the other format blocks the lock: calls that do not wait return
// [driver.ErrForeign]. A redislock lock that was obtained again with its own token, and a
// redsync lock with SetNXOnExtend, behave as in those libraries.
//
// # Fenced locks
//
// Every lock in Redisson's format is what Redisson calls a fenced lock. The tokens of its
// RFencedLock and ours count in one key, and each is larger than those before. Redisson
// would begin at 1 again if the counter expired: set [Config.FenceTTL] negative if
// Redisson's fenced locks use the same names.
//
// # The client
//
// [Open] makes a client with the right options from a URL. [New] takes an existing
// client, single, sentinel or cluster, and refuses it if an option would break a promise.
// Each command disables go-redis's own retries, since a retry cannot be distinguished
// from a first attempt. Package lock repeats the requests that are safe to repeat.
//
// The server must be Redis 6.2 or later, or a compatible one, with scripts and pub/sub.
// Its eviction policy must be noeviction: an evicted lock is a lost lock. [Store.Check]
// finds what is not as it should be.
//
// Do not connect through a proxy that spreads keys over servers, such as twemproxy, or Envoy
// in front of several servers. It sends a script where the first of its keys is. Requests
// and renewals of different locks share scripts, so two owners would have one lock.
// [Store.Check] finds such a proxy.
package redisstore

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder, or in internal/, is of this package.
// TestPlacesOfChanges in cmd/leasewheel compares the names with the code.
//
// How scripts are put together, which numbers they accept, and what they reply:
// internal/lua/script.go, internal/lua/number.lua, reply.go.
// Tests: internal/lua/script_test.go, reply_test.go, bounds_test.go, semaphore_test.go.
// Planted: 426, 427.
//
// The scripts of a mutex: mutex.go, plain.go, internal/lua/acquire.lua, internal/lua/release.lua,
// internal/lua/wait_queue.lua, internal/lua/grant_next.lua, internal/lua/take.lua.
// Tests: handover_test.go, scripts_test.go, hostile_test.go, plain_test.go.
// Planted: 06-dead-waiters-in-one-run, 06-gap-of-the-future, 07-grant-without-the-secret,
// 07-inner-unlock-needs-memory, 09-foreign-hash-is-a-lock, 17, 45, 91, 424, 579.
//
// Yield windows for clients that poll: internal/lua/yield.lua, internal/lua/mutex_yield.lua,
// internal/lua/plain_yield.lua, internal/lua/listeners.lua.
// Tests: interop_test.go, plain_test.go, listeners_test.go.
// Planted: 493, 495, 543.
//
// Fencing tokens: internal/lua/token.lua, internal/lua/fence.lua, mutex.go Store.Fence().
// Tests: token_test.go.
// Planted: 04, 05, 18, 46, 51, 63.
//
// Subscriptions: pubsub.go, internal/pubsub/subscriber.go, internal/pubsub/conn.go,
// internal/transport/epoch.go, internal/lua/publish.lua.
// Tests: internal/pubsub/conn_test.go, internal/pubsub/random_test.go, subscriber_test.go,
// cluster_test.go, upgrade_test.go, mute_test.go, failover_test.go.
// Planted: 03, 09-healthy-connection-is-broken, 57, 206, 208, 218, 260, 265, 271, 272, 355, 373, 394, 408, 503, 525, 526, 564, 568, 572, 573, 574, 578.
//
// The nodes of a cluster, and a start while one does not answer: internal/transport/nodes.go
// nodes.locate(), nodes.Masters(), store.go Store.publishing().
// Tests: internal/transport/nodes_test.go, mute_test.go, cluster_test.go.
// Planted: 160, 161, 162, 163, 263, 425, 556.
//
// How requests are sent: internal/transport/batch.go, internal/transport/pipeline.go,
// internal/transport/shared.go, internal/lua/shared.lua, internal/transport/request.go,
// internal/transport/transport.go, internal/transport/clock.go, internal/lua/deadline.lua,
// internal/transport/query.go, internal/transport/background.go, internal/transport/reply.go; panics of hooks:
// internal/fault/fault.go Protect(), lock/internal/panics/panics.go.
// Tests: internal/transport/batch_test.go, internal/transport/clock_test.go, internal/transport/shared_test.go,
// batcher_test.go, shared_test.go, deadline_test.go, serverclock_test.go, hooks_test.go,
// lock/internal/panics/panics_test.go.
// Planted: 08, 53, 56, 90, 92, 93, 94, 95, 96, 351, 372, 398, 500, 504, 580.
//
// Renewals on Redis, and requests while a cluster moves a slot: store.go Store.Renew(),
// internal/transport/renewal.go, internal/lua/renew.lua, internal/lua/fence_life.lua, readwrite.go.
// Tests: reply_test.go, faults_test.go, token_test.go, cluster_test.go, redirect_test.go.
// Planted: 01, 02, 207, 209, 231, 407, 494.
//
// Read-write locks, and their readers that are dead: readwrite.go, internal/lua/readwrite.lua,
// internal/lua/read_release.lua, internal/lua/inspect_lock.lua.
// Tests: readwrite_test.go, bounds_test.go.
// Planted: 16-some-readers-speak-for-all, 470, 492.
//
// Keys that another program has replaced: store.go Store.named(), internal/lua/replaced.lua,
// internal/lua/fair_release.lua, internal/lua/write_release.lua.
// Tests: hostile_test.go.
// Planted: 449, 473, 474.
//
// Semaphores, and what a script leaves that a missing right stops: internal/lua/semaphore_acquire.lua,
// internal/lua/semaphore_release.lua, internal/lua/permit_acquire.lua, internal/lua/permit_release.lua,
// internal/lua/write_acquire.lua, internal/lua/expiry.lua, internal/lua/permits_count.lua, internal/lua/latch_count.lua,
// internal/lua/outcome.lua.
// Tests: semaphore_test.go, interop_test.go, faults_test.go.
// Planted: 482, 483, 484, 485, 486, 487, 488, 489, 496, 540, 541, 547.
//
// What WAIT covers: internal/transport/replicas.go Transport.replicated(),
// internal/transport/request.go Script.Granting, mutex.go.
// Tests: failover_test.go.
// Planted: 185, 328, 329, 422, 522, 523, 524.
//
// Errors of the server, URLs: internal/fault/fault.go, errors.go, client.go, handshake.go.
// Tests: faults_test.go, failover_test.go, version_test.go, client_test.go, handshake_test.go.
// Planted: 43, 52, 98, 279, 302, 305, 306, 317, 320, 337, 338, 339, 353, 385, 409, 420, 428, 429, 505, 542, 598, 610.
//
// Differences of newer servers and Valkey: internal/lua/publish.lua believable(),
// internal/check/serverinfo.go serverInfo.product(), lock/locktest/redistest/cluster.go
// Cluster.owner().
// Tests: listeners_test.go, check_test.go.
// Planted: 186, 187.
//
// What a check finds: lock/driver/finding.go, check.go, internal/check/check.go,
// internal/check/findings.go, internal/check/serverinfo.go, rights.go,
// internal/check/rights.go, internal/lua/rights.lua, internal/lua/spread_write.lua,
// internal/lua/spread_remove.lua, internal/check/roundtrip.go; of a quorum
// lock/quorum/check.go; cmd/leasewheel/internal/doctor/doctor.go, docs/operating.md, docs/doctor.schema.json.
// Tests: check_test.go, rights_test.go, lock/quorum/check_test.go, cmd/leasewheel/doctor_test.go.
// Planted: 99, 168.
