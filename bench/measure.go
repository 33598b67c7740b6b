package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// grace is the time without a run after which missing runs count as lost. It begins a tick
// after the last planned instant, since a wheel rounds up to a tick.
const grace = 30 * time.Second

// A Progress counts the runs of a measurement. It may be read during the measurement. A nil
// Progress counts nothing.
type Progress struct{ done, total atomic.Int64 }

// Load returns how many runs there have been and how many there will be.
func (p *Progress) Load() (done, total int64) { return p.done.Load(), p.total.Load() }

// A Result has the figures of one column.
type Result struct {
	Column Column
	Plan   Plan

	// Planned is the number of runs in the plan. Lost runs never came, Extra runs were not
	// planned; both are 0 for a correct timer.
	Planned, Lost, Extra int64
	// Early is the number of runs before their planned instant, Earliest the greatest time
	// by which one was early.
	Early    int64
	Earliest time.Duration

	// Lateness of every run after its planned instant; early ones count as 0.
	Lateness *Distribution
	// Jitter is the difference of the time between two runs of a timeout from its period. It
	// is empty for one-shot timeouts.
	Jitter *Distribution

	// Elapsed is the time from the first schedule to the last run.
	Elapsed time.Duration
	// Usage is the process' usage in that time, with the load's. UsageKnown is false if the
	// system does not report it.
	Usage      Usage
	UsageKnown bool
}

// Broken reports whether the timer broke a promise that holds under any load.
func (r *Result) Broken() bool { return r.Early > 0 || r.Lost > 0 || r.Extra > 0 }

// Measure runs the plan on the column's timers under the plan's load. When ctx ends it
// returns the cause. progress may be nil.
func Measure(ctx context.Context, c Column, p Plan, progress *Progress) (*Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	timers, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	defer timers.Close()
	m := newMeasurement(p, progress)

	// Collect the garbage of the column before, so that this column does not pay for it.
	runtime.GC()
	stopLoad := p.Load.Start()
	defer stopLoad()

	before, known := ReadUsage()
	m.start = time.Now()
	if err := m.schedule(timers); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := m.wait(ctx, c.Tick); err != nil {
		return nil, err
	}
	after, _ := ReadUsage()

	// Wait for extra runs that are under way, to count them.
	timers.Close()
	r := m.result()
	r.Column, r.Plan = c, p
	r.Usage, r.UsageKnown = after.Since(before), known
	return r, nil
}

// notRun is the lateness of a run that has not come.
const notRun = -1 << 63

// A series is one timeout: all its runs.
type series struct {
	m *measurement
	// start is the instant from which the plan counts, and period the time
	// between two planned instants; a one-shot timeout has one run.
	start, period time.Duration
	// lateness of each run, or notRun. Different runs may come from
	// different goroutines.
	lateness []atomic.Int64
	// next is the run to come.
	next atomic.Int64
}

// planned returns the instant at which a run is due.
func (s *series) planned(run int64) time.Duration {
	return s.start + time.Duration(run+1)*s.period
}

// run records the next run, and reports whether there are more.
func (s *series) run() (more bool) {
	now := time.Since(s.m.start)
	i := s.next.Add(1) - 1
	if i >= int64(len(s.lateness)) {
		if s.m.plan.Mode != Periodic {
			s.m.extra.Add(1)
		}
		return false
	}
	s.lateness[i].Store(int64(now - s.planned(i)))
	s.m.ran(now)
	return i+1 < int64(len(s.lateness))
}

// A measurement records the runs of one column.
type measurement struct {
	plan     Plan
	start    time.Time
	series   []series
	planned  int64
	extra    atomic.Int64
	progress *Progress
	// last is the instant of the last run, set before finished is closed.
	last     time.Duration
	finished chan struct{}
}

func newMeasurement(p Plan, progress *Progress) *measurement {
	if progress == nil {
		progress = new(Progress)
	}
	m := &measurement{plan: p, progress: progress, finished: make(chan struct{})}
	delays := p.delays()
	for _, d := range delays {
		m.planned += int64(p.runs(d))
	}
	runs := make([]atomic.Int64, m.planned)
	for i := range runs {
		runs[i].Store(notRun)
	}
	m.series = make([]series, p.Timeouts)
	for i, d := range delays {
		n := p.runs(d)
		m.series[i] = series{m: m, period: d, lateness: runs[:n:n]}
		runs = runs[n:]
	}
	progress.done.Store(0)
	progress.total.Store(m.planned)
	return m
}

// ran counts a run that came at now.
func (m *measurement) ran(now time.Duration) {
	if m.progress.done.Add(1) == m.planned {
		m.last = now
		close(m.finished)
	}
}

// schedule schedules every series. The clock is read before each call, so the duration of
// the call counts as lateness.
func (m *measurement) schedule(timers Timers) error {
	for i := range m.series {
		s := &m.series[i]
		if err := m.begin(timers, s); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) begin(timers Timers, s *series) error {
	switch m.plan.Mode {
	case Periodic:
		s.start = time.Since(m.start)
		return timers.Repeat(s.period, func() { s.run() })
	case Rearmed:
		var arm func(time.Duration) error
		arm = timers.Reusable(func() {
			if s.run() {
				// A failure shows as a lost run.
				_ = arm(s.planned(s.next.Load()) - time.Since(m.start))
			}
		})
		s.start = time.Since(m.start)
		return arm(s.period)
	default:
		task := func() { s.run() }
		s.start = time.Since(m.start)
		return timers.Schedule(s.period, task)
	}
}

// wait returns when every run has come or counts as lost.
func (m *measurement) wait(ctx context.Context, tick time.Duration) error {
	end := m.plan.MaxDelay
	if m.plan.Mode != OneShot {
		end = m.plan.Duration
	}
	lost := time.NewTimer(end + tick + grace)
	defer lost.Stop()
	for seen := int64(0); ; {
		select {
		case <-m.finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost.C:
			done, _ := m.progress.Load()
			if done == seen {
				m.last = time.Since(m.start)
				return nil
			}
			seen = done
			lost.Reset(grace)
		}
	}
}

// result sums up the lateness of all runs.
func (m *measurement) result() *Result {
	r := &Result{
		Planned:  m.planned,
		Extra:    m.extra.Load(),
		Lateness: newDistribution(),
		Jitter:   newDistribution(),
		Elapsed:  m.last,
	}
	for i := range m.series {
		r.addSeries(&m.series[i])
	}
	return r
}

func (r *Result) addSeries(s *series) {
	previous := int64(notRun)
	for i := range s.lateness {
		late := s.lateness[i].Load()
		if late == notRun {
			r.Lost++
			previous = notRun
			continue
		}
		r.addRun(time.Duration(late))
		if previous != notRun {
			r.Jitter.add((time.Duration(late - previous)).Abs())
		}
		previous = late
	}
}

func (r *Result) addRun(late time.Duration) {
	if late < 0 {
		r.Early++
		r.Earliest = max(r.Earliest, -late)
	}
	r.Lateness.add(late)
}
