// Package etcd benchmarks locks on etcd beside those of etcd's own concurrency package, on a cluster
// of three members that it starts.
//
//	go test -bench 'Pairs/impl=(leasewheel|concurrency)$'
//
// ETCD_SERVER names the server; otherwise .ci/etcd finds it or installs one.
package etcd
