// Package adapters shows how locks plug into the libraries that ask for one. It has examples,
// tested with the real libraries: where ten lines suffice, copy them.
//
//   - gocron: its Locker, for which a Lease is a Lock already, and its Elector
//   - robfig/cron: a JobWrapper that skips what another process runs
//   - goose: its lock.Locker
//
// Package certstorage has what is longer, for certmagic. For idempotent HTTP requests the main
// module has lock/idempotency.
package adapters

// Where a change goes, with its tests. A name without a folder is of this package.
// TestPlacesOfChanges in cmd/leasewheel compares the names with the code.
//
// Adapters of ten lines: example_gocron_test.go, example_cron_test.go, example_goose_test.go.
// Tests: gocron_test.go, cron_test.go, goose_test.go, goose_real_test.go.
