package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// A StressPlan is a stress test of a wheel: several goroutines schedule timeouts, cancel and
// reset some of them at random while they fire, and account for each one.
type StressPlan struct {
	Wheel wheel.Config
	// Expiries is how many timeouts are to run before the stress ends.
	Expiries int64
	// Producers is how many goroutines schedule, Pending how many timeouts
	// each has pending at a time.
	Producers, Pending int
	// MaxDelay bounds the delays, which are drawn evenly from zero up.
	MaxDelay time.Duration
	Load     Load
	Seed     uint64
}

// The bounds of a [StressPlan].
const (
	maxExpiries  = 10_000_000_000
	maxProducers = 1_000
	maxStressed  = 10_000_000 // Producers × Pending
)

// Validate returns an error of one line for an invalid plan, with the accepted values.
func (p StressPlan) Validate() error {
	switch {
	case p.Expiries < 1 || p.Expiries > maxExpiries:
		return fmt.Errorf("expiries must be 1 to %d, got %d", int64(maxExpiries), p.Expiries)
	case p.Producers < 1 || p.Producers > maxProducers:
		return fmt.Errorf("producers must be 1 to %d, got %d", maxProducers, p.Producers)
	case p.Pending < 1 || p.Pending > maxStressed/p.Producers:
		return fmt.Errorf("pending timeouts must be 1 to %d for %d producers, got %d",
			maxStressed/p.Producers, p.Producers, p.Pending)
	case p.MaxDelay < 0 || p.MaxDelay > time.Minute:
		return fmt.Errorf("delay must be 0s to %v, got %v", time.Minute, p.MaxDelay)
	case int(p.Load) >= len(loadNames):
		return errors.New("load must be idle, busy or gc")
	}
	return nil
}

// A StressResult accounts for every timeout that was scheduled.
type StressResult struct {
	// Scheduled = Expired + Cancelled + Unrun + Lost.
	Scheduled, Expired, Cancelled int64
	// Unrun timeouts were returned by Stop. Refused ones got ErrStopped.
	Unrun, Refused int64
	// Moved counts the resets that took effect.
	Moved int64

	// Early runs came before their deadline. Lost timeouts neither ran, nor were cancelled,
	// nor were returned by Stop. Doubled runs came after their timeout had run, or was
	// cancelled or returned. All are 0 for a correct wheel.
	Early, Lost, Doubled int64
	// Goroutines that remained after Stop.
	Goroutines int

	Lateness   *Distribution
	Elapsed    time.Duration
	Usage      Usage
	UsageKnown bool
}

// Broken reports whether the wheel broke a promise.
func (r *StressResult) Broken() bool {
	return r.Early > 0 || r.Lost > 0 || r.Doubled > 0 || r.Goroutines > 0
}

// Stress runs the plan and stops the wheel while goroutines still schedule. When ctx ends it
// returns the cause. progress may be nil.
func Stress(ctx context.Context, p StressPlan, progress *Progress) (*StressResult, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = new(Progress)
	}
	progress.total.Store(p.Expiries)
	before := runtime.NumGoroutine()
	w, err := wheel.New(p.Wheel)
	if err != nil {
		return nil, err
	}
	s := &stress{plan: p, wheel: w, progress: progress, start: time.Now()}
	s.producers = make([]producer, p.Producers)
	for i := range s.producers {
		s.producers[i] = newProducer(s, uint64(i))
	}
	usage, known := ReadUsage()
	stopLoad := p.Load.Start()
	s.run(ctx)
	stopLoad()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	after, _ := ReadUsage()
	r := s.result()
	r.Goroutines = goroutinesBeyond(before)
	r.Usage, r.UsageKnown = after.Since(usage), known
	return r, nil
}

// goroutinesBeyond returns how many goroutines there are beyond a number. Those that are
// about to exit get a second.
func goroutinesBeyond(before int) int {
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return 0
		}
		time.Sleep(time.Millisecond)
	}
	return max(runtime.NumGoroutine()-before, 0)
}

// A stress is a running plan.
type stress struct {
	plan      StressPlan
	wheel     *wheel.Wheel
	progress  *Progress
	start     time.Time
	elapsed   time.Duration
	producers []producer
	stopped   atomic.Bool
	unrun     map[wheel.Timeout]bool
}

// run runs all producers until there were enough expiries, and stops the wheel while they
// schedule their last timeouts.
func (s *stress) run(ctx context.Context) {
	var working, last sync.WaitGroup
	lastBegun := make(chan struct{}, len(s.producers))
	for i := range s.producers {
		p := &s.producers[i]
		working.Go(func() {
			for s.progress.done.Load() < s.plan.Expiries && ctx.Err() == nil {
				p.round(ctx)
			}
		})
	}
	working.Wait()
	for i := range s.producers {
		p := &s.producers[i]
		last.Go(func() { p.lastRound(sync.OnceFunc(func() { lastBegun <- struct{}{} })) })
	}
	<-lastBegun
	s.unrun = make(map[wheel.Timeout]bool)
	for _, u := range s.wheel.Stop() {
		s.unrun[u.Timeout] = true
	}
	s.stopped.Store(true)
	s.elapsed = time.Since(s.start)
	last.Wait()
}

// result checks every record once more, after the last possible run.
func (s *stress) result() *StressResult {
	r := &StressResult{Lateness: newDistribution(), Elapsed: s.elapsed}
	for i := range s.producers {
		p := &s.producers[i]
		for j := range p.records {
			p.settle(&p.records[j], s.unrun)
		}
		r.add(&p.result)
	}
	return r
}

func (r *StressResult) add(o *StressResult) {
	r.Scheduled += o.Scheduled
	r.Expired += o.Expired
	r.Cancelled += o.Cancelled
	r.Unrun += o.Unrun
	r.Refused += o.Refused
	r.Moved += o.Moved
	r.Early += o.Early
	r.Lost += o.Lost
	r.Doubled += o.Doubled
	r.Lateness.merge(o.Lateness)
}

// A producer schedules the timeouts of its records, again and again.
type producer struct {
	s       *stress
	random  *rand.Rand
	records []record
	// left is how many of this round's timeouts have neither run nor been cancelled; ended is
	// signalled when it is 0.
	left   atomic.Int64
	ended  chan struct{}
	result StressResult
}

// A record is a timeout of each round in turn.
type record struct {
	task     func()
	handle   wheel.Timeout
	deadline time.Duration // since the start
	state    recordState
	// ran is the instant of the latest run, set before runs is counted up;
	// seen is how many runs the producer has accounted for.
	ran, runs atomic.Int64
	seen      int64
}

type recordState uint8

const (
	settled recordState = iota
	scheduled
	cancelled
)

func newProducer(s *stress, number uint64) producer {
	return producer{
		s:       s,
		random:  rand.New(rand.NewPCG(s.plan.Seed, number)),
		records: make([]record, s.plan.Pending),
		ended:   make(chan struct{}, 1),
		result:  StressResult{Lateness: newDistribution()},
	}
}

// round schedules all records, cancels and resets some while they fire, waits
// for the rest to run, and accounts for all.
func (p *producer) round(ctx context.Context) {
	p.left.Store(int64(len(p.records)))
	for i := range p.records {
		p.schedule(&p.records[i], p.delay())
	}
	for range p.records {
		r := &p.records[p.random.IntN(len(p.records))]
		switch p.random.IntN(4) {
		case 0:
			p.cancel(r)
		case 1:
			p.reset(r)
		}
	}
	lost := time.NewTimer(p.s.plan.MaxDelay + p.s.plan.Wheel.Tick + grace)
	defer lost.Stop()
	select {
	case <-p.ended:
	case <-lost.C:
	case <-ctx.Done():
	}
	for i := range p.records {
		p.settle(&p.records[i], nil)
	}
}

// lastRound schedules until the wheel refuses: it cancels pending records, accounts for those
// that have run, and schedules both again. It calls begun when one is pending for an hour.
func (p *producer) lastRound(begun func()) {
	p.left.Store(math.MaxInt64)
	for i := 0; p.result.Refused == 0 && !p.s.stopped.Load(); i = (i + 1) % len(p.records) {
		r := &p.records[i]
		if r.state == scheduled {
			p.cancel(r)
			if r.state == scheduled && r.runs.Load() == r.seen {
				continue // it is just about to run
			}
			p.settle(r, nil)
		}
		p.schedule(r, p.delay()+time.Duration(1-i%2)*time.Hour)
		begun()
	}
}

func (p *producer) delay() time.Duration {
	return time.Duration(p.random.Int64N(int64(p.s.plan.MaxDelay) + 1))
}

func (p *producer) schedule(r *record, d time.Duration) {
	if r.task == nil {
		r.task = func() { p.expire(r) }
	}
	r.deadline = time.Since(p.s.start) + d
	handle, err := p.s.wheel.Schedule(d, r.task)
	if err != nil {
		p.result.Refused++
		return
	}
	p.result.Scheduled++
	r.handle, r.state = handle, scheduled
}

func (p *producer) expire(r *record) {
	r.ran.Store(int64(time.Since(p.s.start)))
	r.runs.Add(1)
	p.s.progress.done.Add(1)
	p.end()
}

func (p *producer) cancel(r *record) {
	if r.handle.Cancel() {
		r.state = cancelled
		p.end()
	}
}

func (p *producer) reset(r *record) {
	d := p.delay()
	deadline := time.Since(p.s.start) + d
	if r.handle.Reset(d) {
		r.deadline = deadline
		p.result.Moved++
	}
}

func (p *producer) end() {
	if p.left.Add(-1) == 0 {
		p.ended <- struct{}{}
	}
}

// settle accounts for the outcome of a record. A later run is found by the next settle.
func (p *producer) settle(r *record, unrun map[wheel.Timeout]bool) {
	runs := r.runs.Load() - r.seen
	r.seen += runs
	switch {
	case r.state == cancelled:
		p.result.Cancelled++
	case r.state == scheduled && unrun[r.handle]:
		p.result.Unrun++
	case r.state == scheduled && runs == 0:
		p.result.Lost++
	case r.state == scheduled:
		runs--
		p.result.Expired++
		late := time.Duration(r.ran.Load()) - r.deadline
		if late < 0 {
			p.result.Early++
		}
		p.result.Lateness.add(late)
	}
	p.result.Doubled += runs
	r.state = settled
}
