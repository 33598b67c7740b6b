// Package redisstore keeps locks on Redis, in the wire format of Redisson: Go and
// Java services share the same locks, exclude each other and wake each other.
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
// and, while clients of leasewheel wait for it,
//
//	leasewheel_lock_line:{orders:42}         zset of "<owner> <ms> <tokens>", one for each client, by arrival in µs (Unix time)
//	leasewheel_lock__channel:{orders:42}     channel that all of them listen to; nothing is said there
//	leasewheel_lock__channel:{orders:42}:…   channel of each, by its uuid; a release says to whom it has granted the lock
//	leasewheel_lock_turns:{orders:42}        hash: when the lock is left to clients that poll
//
// A fair lock of that name is the same hash, and has besides, while somebody waits,
//
//	redisson_lock_queue:{orders:42}          list of owners that wait, in their order of arrival
//	redisson_lock_timeout:{orders:42}        zset of them, each with the ms (Unix time) after which Redisson drops it
//	leasewheel_lock_places:{orders:42}       zset of those of leasewheel, each with the ms after which it is taken for dead
//	redisson_lock__channel:{orders:42}:…     channel of each of them, by its owner; a release publishes "0" to the first's
//
// A semaphore of that name, one whose permits expire, and a latch are
//
//	orders:42                                string, how many permits are available, or the count of the latch
//	redisson_sc:{orders:42}                  channel; more permits publish how many there are, or by how many more
//	{orders:42}:timeout                      zset of expiring permits in use: 16 bytes, with the ms (Unix time) at which each expires
//	redisson_countdownlatch__channel__{orders:42}
//	                                         channel; the count zero publishes "0", as a deletion does, a new count "1"
//	leasewheel_request:{orders:42}:…         string, what was done for a request that nobody owns; for 16 s, see [lock.Count], or an hour, see [lock.Hold]
//
// Expiring permits have a fencing counter, too. Permits expire by the server's clock;
// clients of Redisson go by their own. The channel of a latch whose name holds a hash
// tag, like {user:7}:cart, has the whole name in braces once more. In a cluster that
// is another slot, so that Redisson cannot keep such a latch there; leasewheel can, on
// a channel without the further braces.
//
// A name that holds a hash tag of its own, as {user:7}:cart does, gives the tag to
// the derived keys, which then end in the bare name. So all keys of one lock are
// on one server of a cluster.
//
// # Plain locks
//
// With [FormatPlain] a lock is the string that redsync and redislock know, so that a
// fleet which has one of them can go over lock by lock, or service by service:
//
//	orders:42                                string: the owner, with the lease as its TTL
//	redisson_lock__channel:{orders:42}       channel; a release of ours publishes "0"
//	redisson_lock_token:{orders:42}          fencing counter, as above
//	leasewheel_lock_turns:{orders:42}        hash: whose turn it is, while it is contended
//
// It has one owner, so it is a mutex; how often that owner holds it, only its process
// knows. Everything else of a mutex is as ever: the watchdog, loss, reentrancy. Three
// things are less. Peers tell nobody of a release, so a waiter asks every 60 to 180 ms
// while one of them holds the lock. Peers ask now and then, so a lock that goes from
// one of our waiters to the next is left to them for 250 ms every second, or every ten
// if none was seen for ten minutes: then an acquisition is refused though nobody holds
// the lock. And peers take no fencing token: ours grow from one of our grants to the
// next, but a resource that checks them cannot tell a write of a peer's.
//
// A key of the other format is in the way: [lock.ErrForeign] for those who do not
// wait. A lock of redislock's that was obtained again with its own token, and one of
// redsync's with SetNXOnExtend, are theirs as before.
//
// # Fenced locks
//
// Every lock in Redisson's format is what Redisson calls a fenced lock: the tokens of
// its RFencedLock and ours count in one key and grow across each other. Redisson would
// begin at 1 again if the counter expired: set [Config.FenceTTL] negative where it
// takes part.
//
// # The client
//
// [Open] makes a client with the right options from a URL. [New] takes one that
// you have, single, sentinel or cluster, and refuses it if an option of it would
// break a promise. go-redis's own retries are switched off for each command, since
// they cannot be told from a first attempt; package lock sends again what is safe
// to send again.
//
// The server must be Redis 6.2 or later, or one that speaks like it, with scripts
// and pub/sub. Its eviction policy must be noeviction, or one that spares keys
// with a TTL: an evicted lock is a lost lock.
package redisstore
