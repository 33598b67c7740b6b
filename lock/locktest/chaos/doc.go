// Package chaos is the fault bench: real processes use every kind of lock and the delay
// queue on real servers. Faults drawn at random break the network, the processes, the
// servers and the data. An independent checker examines the processes' reports.
//
// A run is a series of rounds. A [plan] defines a round: the servers, the names, the
// users of each name, and the faults. It is drawn from the seed and the round's number
// alone, so a round can be repeated.
//
// Drivers (driver_*.go) run in worker processes, which are this package's test binary
// started again. They use the exported API and report events: a call, a grant, an instant
// at which the lease was valid, the end. Faults (fault_*.go) run in the test's process.
// Each records when it began and ended. Checkers (check_*.go) read events and faults once
// the round is over. A fault that voids a promise, by the README, excuses the uses that
// it affects, and no others.
//
// All instants are of the host's monotonic clock, which all processes share.
//
// The fleet (fleet*.go) plays rounds in virtual time, with simulated processes, networks and
// servers: its plans and faults are its own, the drivers and checkers are the same. A [judge]
// is what both have to check a history.
//
//	make chaos                                     10 minutes
//	make chaos CHAOS_TIME=1h CHAOS_SEED=7
//	go test -tags real ./lock/locktest/chaos -args -seed 7 -round 12
//	go test -tags real ./lock/locktest/chaos -args -time 10m -json report.json
package chaos
