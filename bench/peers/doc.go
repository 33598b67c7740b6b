// Package peers benchmarks timers beside each other: the wheel, the runtime's
// own timers, and the timers of other Go modules, all by the same workloads. It
// is a module of its own, so that their dependencies never enter leasewheel's.
//
// Every benchmark is named after its workload, with the implementation as its first
// parameter, for benchstat:
//
//	go test -bench 'Schedule$/impl=(wheel|runtime)$'
//	go test -bench . | benchstat -col /impl -
//
// Beside the caller's wall time, cpu-ns/op is the CPU time of the whole process for one
// operation, which includes the goroutines of the implementation.
//
// The command in folder report runs all of them and writes docs/benchmarks.md and
// docs/results.
package peers
