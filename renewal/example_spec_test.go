package renewal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// memory is a store of leases in memory that these examples share.
type memory struct {
	mu     sync.Mutex
	owners map[string]string
	gives  time.Duration // the TTL of every grant; 0 means the requested one
}

func (m *memory) Group(string, any) string { return "" }

func (m *memory) Renew(_ context.Context, items []renewal.Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range items {
		switch owner, ok := m.owners[items[i].Key]; {
		case !ok:
			items[i].Outcome = renewal.Gone
		case owner != items[i].Owner:
			items[i].Outcome = renewal.Taken
		default:
			items[i].Outcome, items[i].Given = renewal.Renewed, m.gives
		}
	}
}

func (m *memory) release(key, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners[key] == owner {
		delete(m.owners, key)
	}
}

// watched returns a watchdog on a store, with a lease there that it keeps. The lease was
// granted 20 s ago, and its TTL is a minute: a renewal is due now.
func watched(s renewal.Spec, c renewal.Config) (*renewal.Watchdog, *memory, *renewal.Lease) {
	m := &memory{owners: map[string]string{"job": "me"}}
	watchdog, lease := watchedIn(m, s, c)
	return watchdog, m, lease
}

func watchedIn(m *memory, s renewal.Spec, c renewal.Config) (*renewal.Watchdog, *renewal.Lease) {
	watchdog, err := renewal.New(m, c)
	if err != nil {
		panic(err)
	}
	s.Key, s.Owner, s.TTL, s.Granted = "job", "me", time.Minute, time.Now().Add(-20*time.Second)
	lease, err := watchdog.Watch(s)
	if err != nil {
		panic(err)
	}
	return watchdog, lease
}

// The cause of a loss is available.
func ExampleLostError() {
	empty := &memory{} // an administrator has deleted the lease
	watchdog, lease := watchedIn(empty, renewal.Spec{}, renewal.Config{})
	defer watchdog.Close(context.Background())
	<-lease.Lost()

	var lost *renewal.LostError
	if errors.As(lease.Err(), &lost) {
		fmt.Println(lost.Cause == renewal.Deleted, errors.Is(lost, renewal.ErrLost))
		fmt.Println(lost)
	}
	// Output:
	// true true
	// renewal: lease "job" lost: deleted
}

// A holder that hangs does not keep its lease: here it stops its heartbeat.
func ExampleLease_Beat() {
	watchdog, _, lease := watched(renewal.Spec{Heartbeat: 100 * time.Millisecond}, renewal.Config{})
	defer watchdog.Close(context.Background())

	for range 3 { // pieces of work
		lease.Beat()
	}
	<-lease.Lost() // a piece of work that hangs
	fmt.Println(lease.Err())
	// Output: renewal: lease "job" lost: no heartbeat
}

// MaxHold bounds the time that a lease is held, even if its holder is alive.
func ExampleSpec_maxHold() {
	told := make(chan error)
	watchdog, _, _ := watched(renewal.Spec{
		MaxHold: 20*time.Second + 100*time.Millisecond,
		OnLost:  func(err error) { told <- err },
	}, renewal.Config{})
	defer watchdog.Close(context.Background())

	fmt.Println(<-told)
	// Output: renewal: lease "job" lost: held too long
}

// Alive is called before each renewal.
func ExampleSpec_alive() {
	var healthy atomic.Bool // is false
	watchdog, _, lease := watched(renewal.Spec{Alive: healthy.Load}, renewal.Config{})
	defer watchdog.Close(context.Background())

	<-lease.Lost()
	fmt.Println(lease.Err())
	// Output: renewal: lease "job" lost: holder not alive
}

// The end of a context ends the lease.
func ExampleSpec_context() {
	ctx, cancel := context.WithCancelCause(context.Background())
	watchdog, _, lease := watched(renewal.Spec{Context: ctx}, renewal.Config{})
	defer watchdog.Close(context.Background())

	cancel(errors.New("the deployment is over"))
	<-lease.Lost()
	fmt.Println(lease.Err())
	// Output: renewal: lease "job" lost: context ended: the deployment is over
}

// A store that gives another TTL than requested determines the interval of renewals.
func ExampleItem_serverChosenTTL() {
	renewed := make(chan renewal.Batch, 1)
	store := &memory{owners: map[string]string{"job": "me"}, gives: time.Hour}
	watchdog, lease := watchedIn(store, renewal.Spec{}, renewal.Config{
		Observer: &renewal.Observer{Batch: func(b renewal.Batch) { renewed <- b }},
	})
	defer watchdog.Close(context.Background())

	<-renewed
	fmt.Println("asked for", lease.TTL(), "- good for", time.Until(lease.Until()).Round(time.Minute))
	// Output: asked for 1m0s - good for 59m0s
}

// Abandon ends the leases of holders that are late. Here they are released, too.
func ExampleWatchdog_Abandon() {
	ctx := context.Background()
	watchdog, store, _ := watched(renewal.Spec{}, renewal.Config{})
	defer watchdog.Close(ctx)

	for _, lease := range watchdog.Abandon() {
		fmt.Println(lease.Err())
		if lease.Stop(ctx) == nil { // no renewal is in flight
			store.release(lease.Key(), lease.Owner())
		}
	}
	fmt.Println("left behind:", len(store.owners))
	// Output:
	// renewal: lease "job" lost: watchdog closed
	// left behind: 0
}

// Drain waits until the holders are done; their leases are renewed meanwhile.
func ExampleWatchdog_Drain() {
	ctx := context.Background()
	watchdog, _, lease := watched(renewal.Spec{}, renewal.Config{})
	defer watchdog.Close(ctx)

	go func() { // the last piece of work
		fmt.Println("in time:", lease.Valid())
		lease.Stop(ctx)
	}()
	fmt.Println(watchdog.Drain(ctx))
	_, err := watchdog.Watch(renewal.Spec{Key: "late", TTL: time.Second, Granted: time.Now()})
	fmt.Println(err)
	// Output:
	// in time: true
	// <nil>
	// renewal: watchdog closed
}

// An observer receives every request: its size, its lag, and how much of the leases' time
// was left when the reply came.
func ExampleObserver() {
	batches := make(chan renewal.Batch, 100)
	watchdog, _, _ := watched(renewal.Spec{}, renewal.Config{
		Observer: &renewal.Observer{Batch: func(b renewal.Batch) { batches <- b }},
	})
	defer watchdog.Close(context.Background())

	b := <-batches
	fmt.Println("leases:", b.Size, "renewed:", b.Renewed, "retried:", b.Retried)

	s := watchdog.Stats()
	fmt.Println("held:", s.Held, "late:", s.Late(), "lost:", s.Lost.Total())
	// Output:
	// leases: 1 renewed: 1 retried: 0
	// held: 1 late: 0 lost: 0
}

// Until is the rule for programs that keep a lease without a watchdog.
func ExampleUntil() {
	asked := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println(renewal.Until(asked, 30*time.Second).Format("15:04:05.000"))
	// Output: 12:00:29.698
}
