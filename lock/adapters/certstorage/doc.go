// Package certstorage gives certmagic's storage the locks of package lock, so that the servers
// that share certificates obtain each of them once:
//
//	certmagic.Default.Storage = certstorage.New(storage, locker, lock.Options{})
//
// The certificates stay where they are. Instead of files whose age is guessed by clocks, the
// locks are leases: one whose server died is free after its TTL, and none is taken from a
// server that works for long, since it is renewed.
package certstorage

// Where a change goes, with its tests. A name without a folder is of this package.
// TestPlacesOfChanges in cmd/leasewheel compares the names with the code.
//
// Locks for certmagic: storage.go.
// Tests: storage_test.go.
// Planted: 256, 257, 287.
