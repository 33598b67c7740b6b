package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// defers defers f under a lock.
func (b *bench) defers(ctx context.Context, l *lock.Locker, name string, f func(context.Context) error) *lock.Deferred {
	b.Helper()
	d, err := b.mutex(l, name).Go(ctx, f)
	if err != nil {
		b.Fatalf("defer for %q: %v", name, err)
	}
	return d
}

// runsDeferredFunctions defers functions, and runs blocking ones, on several lockers for
// locks that another locker holds. The functions change data that only the locks protect.
func runsDeferredFunctions(b *bench) {
	const lockers, functions = 2, 8
	names := []string{"a", "b", "c"}
	patient := lock.Config{RequestTimeout: soon, RetryFor: soon} // many requests at once on a busy machine
	holder := b.locker(patient)
	var held []*lock.Lease
	for _, name := range names {
		held = append(held, b.lock(holder, name))
	}
	counters := make([]int, len(names)) // not atomic: the locks make it safe, and -race checks it
	var deferred []*lock.Deferred
	var work sync.WaitGroup
	for range lockers {
		l := b.locker(patient)
		for i := range functions * len(names) {
			which := i % len(names)
			count := func(context.Context) error {
				counters[which]++
				return nil
			}
			if i%4 == 0 {
				work.Go(func() {
					if err := b.mutex(l, names[which]).Do(b.Context(), count); err != nil {
						b.Errorf("do: %v", err)
					}
				})
				continue
			}
			deferred = append(deferred, b.defers(b.Context(), l, names[which], count))
		}
	}
	for _, lease := range held {
		b.unlock(lease)
	}
	for _, d := range deferred {
		if err := d.Wait(b.Context()); err != nil {
			b.Errorf("a deferred function's result: %v", err)
		}
	}
	work.Wait()
	for i, n := range counters {
		if n != lockers*functions {
			b.Errorf("%d functions for lock %s have counted to %d", lockers*functions, names[i], n)
		}
	}
}

// withdrawsDeferredFunctions cancels functions at random moments: none of them runs
// afterwards, and nothing is left at the store.
func withdrawsDeferredFunctions(b *bench) {
	l, other := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	var work sync.WaitGroup
	for i := range 30 {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var ran atomic.Bool
		d := b.defers(ctx, l, "a", func(context.Context) error {
			ran.Store(true)
			return nil
		})
		work.Go(func() {
			time.Sleep(rand.N(3 * time.Millisecond))
			if i%2 == 0 {
				cancel()
			} else {
				d.Cancel()
			}
			err := d.Wait(b.Context())
			if withdrawn := errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrCancelled); err != nil && !withdrawn || withdrawn == ran.Load() {
				b.Errorf("function %d ran: %v, with the result %v", i, ran.Load(), err)
			}
		})
	}
	work.Wait()
	b.unlock(b.lock(other, "a"))
}

// notifiesDeferredFunctionsOfLoss deletes the lock of a running function.
func notifiesDeferredFunctionsOfLoss(b *bench) {
	l := b.locker(lock.Config{TTL: ttl})
	began := make(chan struct{})
	d := b.defers(b.Context(), l, "a", func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	<-began
	ended := make(chan error, 1)
	go func() { ended <- d.Wait(b.Context()) }()
	if err, _ := deleteUntil(b, "a", ended); !errors.Is(err, lock.ErrLost) {
		b.Errorf("a deferred function that lost its lease has the result %v", err)
	}
}
