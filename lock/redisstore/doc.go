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
// A fair lock of that name is the same hash, and has besides, while somebody waits,
//
//	redisson_lock_queue:{orders:42}          list of owners that wait, in their order of arrival
//	redisson_lock_timeout:{orders:42}        zset of them, each with the ms (Unix time) after which Redisson drops it
//	leasewheel_lock_places:{orders:42}       zset of those of leasewheel, each with the ms after which it is taken for dead
//	redisson_lock__channel:{orders:42}:…     channel of each of them, by its owner; a release publishes "0" to the first's
//
// A name that holds a hash tag of its own, as {user:7}:cart does, gives the tag to
// the derived keys, which then end in the bare name. So all keys of one lock are
// on one server of a cluster.
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
