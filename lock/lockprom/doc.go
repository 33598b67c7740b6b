// Package lockprom exports metrics of locks, leases and wheels to Prometheus.
//
// A [Collector] reads the statistics of lockers, watchdogs and wheels when it is scraped,
// and measures waits and holds as an [observe.Observer]:
//
//	metrics := lockprom.New(lockprom.Config{})
//	prometheus.MustRegister(metrics)
//	locker, err := lock.New(store, lock.Config{Observer: metrics.Observer("orders")})
//	…
//	metrics.AddLocker("orders", locker)
//
// The labels have few values: the names that the program gives to its lockers, watchdogs
// and wheels, the kind of lock, the outcome, and the cause of a loss. Names of locks appear
// only as [Config.LockLabel] maps them. Where a value has several words, they are joined by
// underscores: kind="read_lock", cause="taken_over".
//
// What each metric means, and what to do when it rises, is in docs/metrics.md. Beside this
// file are alerts.yaml, the rules for Prometheus, and dashboard.json, a dashboard for
// Grafana.
package lockprom

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Metrics for Prometheus, alerts, the dashboard: metrics.go, lock/internal/exporter/numbers.go,
// collector.go, alerts.yaml, dashboard.json, docs/metrics.md.
// Tests: metrics_test.go, script_test.go, documents_test.go.
