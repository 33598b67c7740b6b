// Package lockotel records OpenTelemetry's metrics of locks, leases and wheels, and spans of
// acquisitions and holds.
//
// A [Telemetry] is an [observe.Observer] of lockers, and reads their statistics when metrics are
// collected:
//
//	telemetry, err := lockotel.New(lockotel.Config{})
//	…
//	locker, err := lock.New(store, lock.Config{Observer: telemetry.Observer("orders")})
//	…
//	telemetry.AddLocker("orders", locker)
//
// # Metrics
//
// The metrics, their meaning and what to do when they rise are in docs/metrics.md. Attributes
// have few values: the names that the program gives to its lockers, watchdogs and wheels, the
// kind of lock, the outcome, and the cause of a loss. Where a value has several words, they
// are joined by underscores.
//
// Four histograms are counted by the wheel and the watchdog themselves. They come from
// [Telemetry.Produce]:
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(telemetry))
//
// # Spans
//
// All spans descend from the span in the caller's context, and are recorded when they end:
//
//	lock.acquire  from the call to its result
//	lock.wait     in lock.acquire: the time in this process's queue, if there was any
//	lock.hold     from the grant to the last unlock, or to the loss
//	lock.lose     in lock.hold: the moment of a loss
//
// Those of acquisitions and holds have the attributes leasewheel.locker, leasewheel.lock.kind,
// leasewheel.lock.name and leasewheel.outcome. After a failure and after a loss, error.type is
// the reason, and the status is an error; a refusal is none.
package lockotel

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Metrics and spans for OpenTelemetry: instruments.go, lock/internal/exporter/numbers.go, producer.go,
// observer.go, docs/metrics.md.
// Tests: instruments_test.go, script_test.go.
