package lockprom_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/lockprom"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// service is a program whose locks are measured, and reported in its log as well.
type service struct {
	locker *lock.Locker
	remove func() // withdraws the metrics
	mux    *http.ServeMux
}

// newService makes the locker on store, and registers its metrics with the program's others.
func newService(store lock.Store, registry *prometheus.Registry) (*service, error) {
	metrics := lockprom.New(lockprom.Config{LockLabel: resource})
	if err := registry.Register(metrics); err != nil {
		return nil, err
	}
	losses := &observe.Observer{Ended: func(_ context.Context, e observe.Ended) {
		if e.Err != nil {
			slog.Error("a lock was lost", "name", e.Name, "error", e.Err)
		}
	}}
	locker, err := lock.New(store, lock.Config{
		Observer: observe.Join(metrics.Observer("shop"), losses),
	})
	if err != nil {
		return nil, err
	}
	s := &service{locker: locker, remove: metrics.AddLocker("shop", locker), mux: http.NewServeMux()}
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return s, nil
}

// resource is the label of a lock: what its name has before the colon. It has few values,
// where names have many.
func resource(_ driver.Kind, name string) string {
	label, _, _ := strings.Cut(name, ":")
	return label
}

func (s *service) close(ctx context.Context) error {
	defer s.remove()
	return s.locker.Shutdown(ctx)
}

// A service with metrics of its locks, leases and wheel on /metrics. Beside this package's
// code are alerts.yaml, the rules for them, and dashboard.json.
func Example_service() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open
	defer t.End()
	s, err := newService(locktest.Start(&t).Store(&t), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(s.mux)
	defer server.Close()

	for _, name := range []string{"orders:42", "orders:43", "users:7"} {
		err := s.locker.Mutex(name).Do(context.Background(), func(context.Context) error { return nil })
		if err != nil {
			fmt.Println(err)
		}
	}

	reply, err := http.Get(server.URL + "/metrics")
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		name, _, _ := strings.Cut(lines.Text(), "{")
		switch name {
		case "leasewheel_leases_held", "leasewheel_lock_hold_seconds_count":
			fmt.Println(lines.Text())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println("closed:", s.close(ctx))
	// Output:
	// leasewheel_leases_held{watchdog="shop"} 0
	// leasewheel_lock_hold_seconds_count{kind="mutex",lock="orders",locker="shop",outcome="released"} 2
	// leasewheel_lock_hold_seconds_count{kind="mutex",lock="users",locker="shop",outcome="released"} 1
	// closed: <nil>
}
