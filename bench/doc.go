// Package bench measures timers: their lateness and their cost. The benchmarks and the
// command leasewheel accuracy share it.
//
// [Measure] runs one [Plan] against one timer implementation, a [Column], and
// returns a [Result]. Several columns measured one after the other by the same
// plan make a report; the first is usually [Runtime], the timers of Go itself,
// as the floor that a machine allows.
//
// # What is measured
//
// Lateness is counted from the planned instant: for one timeout the reading of
// the monotonic clock just before it was scheduled plus its delay, for the runs
// of a periodic or re-armed timeout the start plus a whole number of periods. A
// run that is late never moves the plan of those after it, so that a stall shows
// in every run that it delayed (no coordinated omission). A run before its
// planned instant is early; no rounding of the timer under measurement enters.
//
// CPU time and context switches are those of the whole process, from the first
// schedule to the last run. Under a [Load] they include the load's.
package bench

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// leasewheel accuracy: plan.go, measure.go, distribution.go; its report:
// cmd/leasewheel/internal/accuracy/report.go,
// cmd/leasewheel/internal/accuracy/files.go; stress.go.
// Tests: measure_test.go, distribution_test.go, usage_unix_test.go, stress_test.go,
// cmd/leasewheel/internal/accuracy/accuracy_test.go.
// Planted: 140, 141, 142, 143, 144, 145, 146, 147.
