//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

const (
	// keeperRequests is how many leases are acquired, and released, at a time.
	keeperRequests = 16
	// keeperDeletes is how many leases are deleted on the server.
	keeperDeletes = 5
	// keeperProbes is how many timeouts run at any time to measure the timer, with delays
	// up to keeperProbeDelay.
	keeperProbes     = 50
	keeperProbeDelay = 500 * time.Millisecond
)

// countingStore counts the renewals that pass through it, and notes them in a life.
type countingStore struct {
	driver.Store
	life              *leasesLife
	batches, renewals atomic.Int64
}

func (s *countingStore) Renew(ctx context.Context, items []renewal.Item) {
	sent := time.Now()
	s.Store.Renew(ctx, items)
	s.batches.Add(1)
	s.renewals.Add(int64(s.life.renewed(items, sent, time.Now())))
}

// keeper holds very many leases in one process, on one wheel, and measures the wheel's
// accuracy meanwhile.
type keeper struct {
	server *connect.Server
	store  *countingStore
	life   *leasesLife
	wheel  *wheel.Wheel
	locker *lock.Locker
	prefix string

	leases []*lock.Lease
	taken  atomic.Int64 // of leases
	tenth  int          // goroutines of the process with a tenth of the leases
	all    int          // and with all of them

	mu       sync.Mutex
	losses   map[string]time.Time // name of a lost lease to when its loss was reported
	lateness []time.Duration

	lossTold chan struct{} // has room for one; sent to when losses grows
}

// newKeeper makes a keeper whose locks are named prefix and a number.
func newKeeper(s *connect.Server, prefix string, ttl time.Duration) (*keeper, error) {
	life := newLeasesLife()
	k := &keeper{
		server: s, store: &countingStore{Store: s.Store, life: life}, life: life, prefix: prefix,
		losses: make(map[string]time.Time), lossTold: make(chan struct{}, 1),
	}
	var err error
	// The report contains what the wheel would warn of.
	if k.wheel, err = wheel.New(wheel.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if k.locker, err = lock.New(k.store, lock.Config{TTL: ttl, Wheel: k.wheel}); err != nil {
		k.wheel.Stop()
		return nil, err
	}
	return k, nil
}

// take acquires n leases. The watchdog renews them from then on.
func (k *keeper) take(ctx context.Context, n int) error {
	k.leases = make([]*lock.Lease, n)
	for _, i := range shownLeases(n) {
		k.life.show(k.name(i), fmt.Sprintf("lease %d", i))
	}
	tenth := n / 10
	if err := k.takeRange(ctx, 0, tenth); err != nil {
		return err
	}
	k.tenth = runtime.NumGoroutine()
	err := k.takeRange(ctx, tenth, n)
	k.all = runtime.NumGoroutine()
	return err
}

func (k *keeper) takeRange(ctx context.Context, from, to int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(keeperRequests)
	for i := from; i < to; i++ {
		group.Go(func() (err error) {
			name := k.name(i)
			options := lock.Options{OnLost: func(err error) { k.noteLoss(name, err) }}
			asked := time.Now()
			// The lock is free. Lock repeats a request that a busy server did not answer.
			if k.leases[i], err = k.locker.Mutex(name).With(options).Lock(ctx); err == nil {
				k.taken.Add(1)
				k.life.granted(name, asked, time.Now(), k.leases[i].Token())
			}
			return err
		})
	}
	return group.Wait()
}

func (k *keeper) name(i int) string { return fmt.Sprintf("%s:%d", k.prefix, i) }

func (k *keeper) noteLoss(name string, err error) {
	at := time.Now()
	k.mu.Lock()
	k.losses[name] = at
	k.mu.Unlock()
	if lost, ok := errors.AsType[*lock.LostError](err); ok {
		k.life.lossReported(name, at, lost.Cause.String())
	}
	select {
	case k.lossTold <- struct{}{}:
	default:
	}
}

// deleteSome deletes a few locks on the server and waits, at most for limit, until their
// losses are reported. It returns their number and the time of the last one.
func (k *keeper) deleteSome(ctx context.Context, limit time.Duration) (deleted, told int, slowest time.Duration, err error) {
	names := make([]string, min(keeperDeletes, len(k.leases)))
	for i := range names {
		names[i] = k.name(shownLeases(len(k.leases))[2*i])
	}
	begin := time.Now()
	for _, name := range names { // one by one: they may be on different nodes
		k.life.deleted(name, time.Now())
		if err := k.server.Client.Del(ctx, name).Err(); err != nil {
			return 0, 0, 0, err
		}
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		if told, slowest = k.toldSince(names, begin); told == len(names) {
			return len(names), told, slowest, nil
		}
		select {
		case <-k.lossTold:
		case <-timeout.C:
			return len(names), told, slowest, nil
		case <-ctx.Done():
			return len(names), told, slowest, context.Cause(ctx)
		}
	}
}

func (k *keeper) toldSince(names []string, begin time.Time) (told int, slowest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		if at, lost := k.losses[name]; lost {
			told++
			slowest = max(slowest, at.Sub(begin))
		}
	}
	return told, slowest
}

// lossCount is the number of all reported losses.
func (k *keeper) lossCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.losses)
}

// probe measures the wheel until it stops: each of a few timeouts schedules the next one
// as it runs.
func (k *keeper) probe() error {
	for range keeperProbes {
		if err := k.probeOnce(); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) probeOnce() error {
	delay := rand.N(keeperProbeDelay)
	planned := time.Now().Add(delay)
	_, err := k.wheel.Schedule(delay, func() {
		late := time.Since(planned)
		k.mu.Lock()
		k.lateness = append(k.lateness, late)
		k.mu.Unlock()
		k.probeOnce() //nolint:errcheck // fails when the wheel has stopped: then the probing ends
	})
	return err
}

// measured returns the lateness of every probe so far.
func (k *keeper) measured() []time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]time.Duration(nil), k.lateness...)
}

// close ends the keeper. The leases expire by themselves.
func (k *keeper) close() error {
	err := k.locker.Close()
	k.wheel.Stop()
	return err
}

// release releases all leases.
func (k *keeper) release(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(keeperRequests)
	for _, lease := range k.leases {
		if lease == nil {
			continue
		}
		group.Go(func() error {
			if err := lease.Unlock(groupCtx); err != nil && !errors.Is(err, lock.ErrLost) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}
