package lockprom_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/lockprom"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// grep prints the lines of a scrape that begin with one of the prefixes.
func grep(registry *prometheus.Registry, prefixes ...string) {
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(recorder.Body.String()) {
		for _, prefix := range prefixes {
			if strings.HasPrefix(line, prefix) {
				fmt.Print(line)
			}
		}
	}
}

// The lines of docs/metrics.md.
func Example() {
	var t locktest.Scope // instead of a server
	defer t.End()
	store := locktest.Start(&t).Store(&t)

	metrics := lockprom.New(lockprom.Config{})
	prometheus.MustRegister(metrics)
	locker, err := lock.New(store, lock.Config{Observer: metrics.Observer("orders")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	metrics.AddLocker("orders", locker)

	count, err := testutil.GatherAndCount(prometheus.DefaultGatherer, "leasewheel_leases_held")
	fmt.Println(count, err, prometheus.Unregister(metrics))
	// Output: 1 <nil> true
}

// One collector serves all lockers of a process.
func ExampleCollector() {
	var t locktest.Scope // instead of a server
	defer t.End()
	server := locktest.Start(&t)
	ctx := context.Background()

	metrics := lockprom.New(lockprom.Config{})
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)

	locker := server.Locker(&t, lock.Config{Observer: metrics.Observer("orders")})
	defer metrics.AddLocker("orders", locker)()

	other := server.Locker(&t, lock.Config{})
	err := locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		return other.Mutex("orders:43").Do(ctx, func(context.Context) error {
			_, err := locker.Mutex("orders:43").TryLock(ctx)
			fmt.Println("refused:", errors.Is(err, lock.ErrNotAcquired))
			return nil
		})
	})
	if err != nil {
		fmt.Println(err)
	}

	grep(registry, "leasewheel_lock_acquisitions_total", "leasewheel_lock_hold_seconds_count")
	// Output:
	// refused: true
	// leasewheel_lock_acquisitions_total{locker="orders",outcome="failed"} 0
	// leasewheel_lock_acquisitions_total{locker="orders",outcome="granted"} 1
	// leasewheel_lock_acquisitions_total{locker="orders",outcome="handed_off"} 0
	// leasewheel_lock_acquisitions_total{locker="orders",outcome="refused"} 1
	// leasewheel_lock_hold_seconds_count{kind="mutex",locker="orders",outcome="released"} 1
}

// A label for the part of a name that has few values, here what is before the colon.
func ExampleConfig() {
	var t locktest.Scope
	defer t.End()

	metrics := lockprom.New(lockprom.Config{
		LockLabel: func(_ driver.Kind, name string) string {
			resource, _, _ := strings.Cut(name, ":")
			return resource
		},
		MaxLockLabels: 20,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	locker := locktest.New(&t, lock.Config{Observer: metrics.Observer("main")})
	for _, name := range []string{"orders:42", "orders:43", "users:7"} {
		err := locker.Mutex(name).Do(context.Background(), func(context.Context) error { return nil })
		if err != nil {
			fmt.Println(err)
		}
	}
	grep(registry, "leasewheel_lock_hold_seconds_count")
	// Output:
	// leasewheel_lock_hold_seconds_count{kind="mutex",lock="orders",locker="main",outcome="released"} 2
	// leasewheel_lock_hold_seconds_count{kind="mutex",lock="users",locker="main",outcome="released"} 1
}
