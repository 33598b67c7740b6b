//go:build unix

package bench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/renewal"
)

// baselineScript renews one lease if it is still its owner's.
var baselineScript = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[1])`)

// baseline is a common approach: a goroutine and a ticker for each lease, each with
// requests of its own.
type baseline struct {
	*fleet
	measuring atomic.Bool
	mu        sync.Mutex
	latency   *latency // how late renewals were sent; guarded by mu

	renewed, retried, late, lost atomic.Int64
}

// measureBaseline keeps the fleet alive with a goroutine for each lease.
func measureBaseline(ctx context.Context, f *fleet, window time.Duration, p *progress) (figures *renewalFigures, err error) {
	b := &baseline{fleet: f, latency: newLatency()}
	before, goroutines := memory(), runtime.NumGoroutine()
	keeping, stop := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	defer func() {
		stop()
		keepers.Wait()
		if swept := f.cleanUp(ctx, p); err == nil {
			err = swept
		}
	}()
	err = f.take(ctx, p, func(name, owner string, asked time.Time) error {
		keepers.Go(func() { b.keep(keeping, name, owner, asked) })
		return nil
	})
	if err == nil {
		err = p.wait(ctx, "settling", f.ttl/2)
	}
	if err != nil {
		return nil, err
	}
	m := newRenewalMeter(f, before)
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	b.measuring.Store(true)
	if err := p.wait(ctx, "measuring", window); err != nil {
		return nil, err
	}
	b.measuring.Store(false)
	figures, err = m.end(ctx, b.renewed.Load())
	if err != nil {
		return nil, err
	}
	figures.Goroutines = runtime.NumGoroutine() - goroutines
	figures.Requests = b.renewed.Load() + b.retried.Load()
	figures.Retried = b.retried.Load()
	figures.Late, figures.Lost = b.late.Load(), b.lost.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	figures.Lateness = b.latency.figures()
	return figures, nil
}

// keep renews one lease until ctx ends or the lease is lost.
func (b *baseline) keep(ctx context.Context, name, owner string, asked time.Time) {
	until := renewal.Until(asked, b.ttl)
	interval := b.ttl / 3
	// Like the watchdog's, the renewals are spread over the interval.
	planned := time.Now().Add(rand.N(interval))
	timer := time.NewTimer(time.Until(planned))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sent := time.Now()
		held, err := baselineScript.Run(ctx, b.Server.Client, []string{name}, b.ttl.Milliseconds(), owner).Bool()
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !held || !now.Before(until):
			b.lost.Add(1)
			return
		case err != nil:
			b.count(&b.retried)
			planned = now.Add(interval / 8)
		default:
			b.count(&b.renewed)
			if until.Sub(now) < b.ttl/2 {
				b.count(&b.late)
			}
			b.note(sent.Sub(planned))
			until = renewal.Until(sent, b.ttl)
			planned = planned.Add(interval)
		}
		timer.Reset(time.Until(planned))
	}
}

func (b *baseline) count(n *atomic.Int64) {
	if b.measuring.Load() {
		n.Add(1)
	}
}

func (b *baseline) note(late time.Duration) {
	if b.measuring.Load() {
		b.mu.Lock()
		b.latency.add(late)
		b.mu.Unlock()
	}
}

// renewalMeter measures the cost of a window of renewals.
type renewalMeter struct {
	fleet  *fleet
	before int64 // memory without the leases

	heap   int64
	client bench.Usage
	server serverUse
	at     time.Time
}

func newRenewalMeter(f *fleet, before int64) *renewalMeter {
	return &renewalMeter{fleet: f, before: before}
}

// begin begins the window.
func (m *renewalMeter) begin(ctx context.Context) (err error) {
	m.heap = memory() - m.before
	if m.server, err = m.fleet.use(ctx); err != nil {
		return err
	}
	m.client, _ = bench.ReadUsage()
	m.at = time.Now()
	return nil
}

// end ends the window, in which renewed leases were renewed.
func (m *renewalMeter) end(ctx context.Context, renewed int64) (*renewalFigures, error) {
	elapsed := time.Since(m.at)
	client, _ := bench.ReadUsage()
	server, err := m.fleet.use(ctx)
	if err != nil {
		return nil, err
	}
	server = server.since(m.server)
	each := max(float64(renewed), 1)
	return &renewalFigures{
		Leases:         m.fleet.size,
		Renewed:        renewed,
		PerSecond:      float64(renewed) / elapsed.Seconds(),
		ClientCPU:      float64(client.Since(m.client).CPU) / each,
		ServerKey:      float64(server.scripts.Microseconds()) / each,
		ServerCPU:      float64(server.cpu.Microseconds()) / each,
		ServerScript:   float64(server.scripts.Microseconds()) / max(float64(server.calls), 1),
		Heap:           float64(m.heap) / float64(m.fleet.size),
		ElapsedSeconds: elapsed.Seconds(),
	}, nil
}
