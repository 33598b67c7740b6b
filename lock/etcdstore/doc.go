// Package etcdstore keeps locks on etcd, 3.4 or newer. A lock that was granted survives the loss of
// a minority of the members, a change of the leader and a partition, without a second holder: what
// no failover of Redis promises. It is a module of its own.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second})
//	store, err := etcdstore.New(client, etcdstore.Config{Prefix: "orders"})
//	locker, err := lock.New(store, lock.Config{})
//
// # What it promises
//
// Mutexes, fair locks and read-write locks, with holds, queues, inspection and forced release, as
// package lock/internal/machine defines them. A majority of the members has every grant, release
// and change of a queue before it is answered. Leases are etcd's: no clock of a client ends one, and
// none of a server that is set. They age while a client's system sleeps. A holder reports the loss of its lock by the word of etcd, at once
// also if its etcd lease was revoked, and by its own clock at the end of what it has confirmed.
//
// A keepalive is answered by one member alone, also by a leader that was deposed. It counts only if
// the same member answers a linearizable read before and one after it, in one raft term. So the
// client's endpoints must be members: behind a balancer that spreads requests no lease is renewed. The
// gRPC proxy of etcd must not be between, either: it answers keepalives by its own, up to a third of a TTL later.
// Members whose --max-txn-ops is below 128, the default, are refused.
//
// Fencing tokens are the revision of etcd at which the lock was granted, above the time in µs at
// which the prefix was first used. So they grow although a cluster is made anew, unless the clock of
// the client that begins the prefix again was set back. A cluster restored from a snapshot repeats
// revisions: delete the key epoch of each prefix before clients reach it, or restore with --bump-revision. One into which keys were
// copied, as by etcdctl make-mirror, has smaller ones: delete it there, too. Copied locks are free. If another
// program has written to that key, no lock is granted or released until it is deleted.
//
// # What it does not
//
// TTLs are whole seconds: others are rounded down, and those below a second, or below the cluster's
// least, are refused. The least is one and a half of the election timeout, rounded up: 2 s by
// default. etcd ends a lease up to half a second late, and after a change of the leader up to a TTL
// late. Some 512 holds of one TTL share an etcd lease, or more that were requested at once. If one of them is not renewed, the others
// move to another lease within half a TTL, so that its end is late by no more, unless the cluster has no
// space: then they stay, and its end is late until there is.
// A lease that is not renewed, as with lock's option Fixed, ends up to a quarter of its TTL early, and
// its loss is reported at its end alone, also if its etcd lease was revoked. A member that hangs,
// rather than dies, delays requests until gRPC notices, after 10 s at the least: locks of shorter TTLs
// may be lost meanwhile, though no lock has two holders.
//
// The servers have no clock by which they could refuse a request that arrives late. An acquisition
// whose caller has given up may take the lock, until its owner's release, which package lock
// repeats: once that is confirmed nothing of it remains, and none of its requests on their way can
// take anything. If the process has died, its etcd lease ends, and a request by an ended lease takes
// nothing. A late keepalive prolongs a lease.
//
// A process that has died keeps its place in a queue, and a lock that was granted to it as it waited,
// for 5 s. Places in a fair queue, and what a waiting writer blocks, end by the clients' clocks: if
// those differ by seconds the order may suffer, but no lock has two holders. Semaphores, expiring
// permits and latches are refused: without a clock a transaction cannot end the records that keep a
// repeated request from being counted twice.
//
// A user with a password needs etcd 3.5 or newer. A member of 3.4 that has forgotten a client's token,
// after five minutes without a request (--auth-token-ttl) or as it was started again, refuses to give it
// another one, and etcd's client repeats that until the request's context ends: no lock is granted or
// renewed until the process is started again. Users of client certificates have no token.
// A token that ends although it is used, as with --auth-token=jwt, has etcd's client check the password
// anew for each request in flight, which takes a member's processor some 75 ms: with a ttl of 2 s and a
// hundred waiters etcd answers few requests. Make it many minutes.
//
// A user has one password, and etcd's client keeps the one that it was made with. A change ends all tokens:
// then no lock is granted or renewed until the process is started again, unless an interceptor of the
// client's DialOptions gives each request of Authenticate the present password, as that of the command
// leasewheel-etcd does.
//
// # What it costs
//
// A pair of Lock and Unlock is two writes, as with etcd's own concurrency package. On a cluster of
// three members, all on two busy cores, one client made 200 pairs a second (that package 250), and a
// contended lock changed hands every 11 ms between two processes and every 13 ms between sixteen (42
// and 8 ms). Renewals of 10,000 locks took 17 µs of the members' time each, 132 µs with an etcd lease
// for each lock. bench/peers/etcd measures them.
//
// # Keys
//
// The record of a name is one key, prefix//lock/name, written by comparing its revision; a contended
// lock costs each waiter's store two or three requests a turn, an uncontended pair two. Records end
// with the etcd lease by which they live, or a minute after the last release; those in which several
// stores have a part are removed by one of the stores within two minutes of their end. A user needs
// the right to read and write the keys that begin with prefix//.
package etcdstore

// Where a change goes, with its tests. A name without a folder is of this package.
//
// Requests: store.go, renew.go, inspect.go, subscription.go; what they mean:
// lock/internal/machine/doc.go.
// Tests: suite_real_test.go, differential_test.go, store_test.go, auth_test.go.
//
// How a step is made and stored: step.go, work.go, transaction.go, request.go, epoch.go; what is
// stored, and what removes it: record.go, keys.go, sweep.go.
// Tests: store_test.go, late_test.go, death_test.go, errors_test.go.
// Planted: 249, 250, 331, 332, 343, 358, 378, 381, 404, 431, 432, 529, 584, 690, 691, 694, 696, 697.
//
// Leases, and which keepalives count: lease.go, clock.go, keeper.go. What a waiter depends on: waiting.go,
// peer.go, watch.go.
// Tests: store_test.go, late_test.go, lease_test.go, peer_test.go, clock_test.go, auth_test.go, keeper_test.go,
// faults_real_test.go, leader_real_test.go, peer_real_test.go; costs: bench/peers/etcd.
// Planted: 223, 247, 248, 251, 264, 361, 386, 403, 405, 406, 415, 472, 477, 558, 692, 693, 695.
