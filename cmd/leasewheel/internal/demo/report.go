//go:build unix

package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// report is what a run of the demo observed, and the limits. Durations are
// nanoseconds in JSON. Every figure comes from the run.
type report struct {
	Server    string        `json:"server"` // "embedded", or the server's own name and version
	Processes int           `json:"processes"`
	TTL       time.Duration `json:"ttl_ns"`
	Elapsed   time.Duration `json:"elapsed_ns"`

	Exclusion exclusionReport `json:"exclusion"`
	Frozen    frozenReport    `json:"frozen"`
	Killed    killedReport    `json:"killed"`
	Leases    leasesReport    `json:"leases"`
	Timer     timerReport     `json:"timer"`

	// Failures are processes and requests that failed and should not have.
	Failures []string `json:"failures"`
	// Stalls are those of the demo's own process.
	Stalls stallsReport `json:"stalls"`
	// Broken are the promises that were broken, and Overloaded those that were not kept
	// either, which the stalls may explain. Both are empty after a good run.
	Broken     []string `json:"broken"`
	Overloaded []string `json:"overloaded"`

	// The rest is for the page.
	lives      *timeline
	unfinished error // why the run ended too soon
	at         time.Time
	version    string
	repeat     string
	machine    bench.Machine
}

// exclusionReport: several processes contend for one lock and one counter.
type exclusionReport struct {
	Acquisitions int `json:"acquisitions"`
	// Overlaps counts holders whose time with the lock began before an earlier holder's
	// had ended, on the host's monotonic clock.
	Overlaps int `json:"overlaps"`
	// Disorder counts grants whose fencing token is not above the one before.
	Disorder int `json:"tokens_out_of_order"`
	// Writes were accepted, and Counter is the resulting count.
	Writes  int64 `json:"writes"`
	Counter int64 `json:"counter"`
	// Refused writes came from holders whose leases seemed valid to them.
	Refused int `json:"writes_refused"`
	// Lost leases were lost although their holders were alive and well.
	Lost int `json:"lost"`
}

// frozenReport: a holder is stopped for longer than its lease, and continues.
type frozenReport struct {
	For   time.Duration `json:"for_ns"`
	Cause string        `json:"cause"` // of the loss, as reported
	// Awake and Told are counted from SIGCONT: until a plain timer of the process fired
	// again, and until the loss was reported to it.
	Awake        time.Duration `json:"awake_ns"`
	Told         time.Duration `json:"told_ns"`
	ToldLimit    time.Duration `json:"told_limit_ns"` // after Awake
	StaleWrites  int           `json:"stale_writes"`
	StaleRefused int           `json:"stale_writes_refused"`
}

// killedReport: a holder is killed.
type killedReport struct {
	Free      time.Duration `json:"free_ns"` // from its death to the next holder
	FreeLimit time.Duration `json:"free_limit_ns"`
}

// leasesReport: very many leases in one process.
type leasesReport struct {
	Count    int   `json:"count"`
	Renewals int64 `json:"renewals"`
	Batches  int64 `json:"batches"`
	// Lost were lost without an intervention.
	Lost int `json:"lost"`
	// Deleted were deleted on the server. The losses of Told of them were reported, the
	// last one ToldIn after the deletion.
	Deleted   int           `json:"deleted"`
	Told      int           `json:"told"`
	ToldIn    time.Duration `json:"told_ns"`
	ToldLimit time.Duration `json:"told_limit_ns"`
	// Goroutines of the process with all leases, and with a tenth of them.
	Goroutines      int `json:"goroutines"`
	GoroutinesTenth int `json:"goroutines_with_a_tenth"`
}

// frugal reports whether goroutines did not grow with the leases. A few come and go with
// connections, in the embedded server up to eight with those of each process: of few leases a tenth
// is acquired before the processes connect.
func (r *report) frugal() bool {
	return r.Leases.Goroutines-r.Leases.GoroutinesTenth <= max(40+8*r.Processes, r.Leases.Count/20)
}

// timerReport: the lateness of timeouts on the wheel of the leases.
type timerReport struct {
	Tick  time.Duration `json:"tick_ns"`
	Fired int           `json:"fired"`
	Early int           `json:"early"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// promise is one promised property.
type promise struct {
	kept   bool
	broken string // the message if it was not kept
	// excused: if it was not kept, stalls of the machine may be why. They never excuse two
	// holders at once, a stale write, tokens out of order, or an early timeout.
	excused bool
}

func promised(kept bool, format string, args ...any) promise {
	return promise{kept: kept, broken: fmt.Sprintf(format, args...)}
}

// unlessStalled returns the promise for a run that the machine does not disturb.
func (p promise) unlessStalled(explained bool) promise {
	p.excused = explained
	return p
}

// judge fills in Broken and Overloaded.
func (r *report) judge() {
	r.Broken, r.Overloaded = []string{}, []string{}
	for _, p := range r.promises() {
		switch {
		case p.kept:
		case p.excused:
			r.Overloaded = append(r.Overloaded, p.broken)
		default:
			r.Broken = append(r.Broken, p.broken)
		}
	}
}

// verdict is the final error: a broken promise is exit code 1, and one that the machine may
// have broken 75.
func (r *report) verdict() error {
	switch {
	case len(r.Broken) > 0:
		return &exit.Error{Code: exit.Broken}
	case len(r.Overloaded) > 0:
		return &exit.Error{Code: exit.Overloaded}
	}
	return nil
}

func (r *report) promises() []promise {
	x, f, k, l, t := r.Exclusion, r.Frozen, r.Killed, r.Leases, r.Timer
	lossy := r.Stalls.explain(r.TTL)
	// within reports whether the stalls are long enough for what took longer than its limit.
	within := func(took, limit time.Duration) bool { return took <= limit+r.Stalls.Sum }
	return []promise{
		promised(x.Acquisitions > 0, "the lock was never acquired"),
		promised(x.Overlaps == 0, "%d holders overlapped with another one", x.Overlaps),
		promised(x.Disorder == 0, "%d fencing tokens were not above the one before", x.Disorder),
		promised(x.Counter == x.Writes, "the counter reads %d after %d accepted writes", x.Counter, x.Writes).unlessStalled(lossy && x.Lost > 0),
		promised(x.Refused == 0, "%d writes of holders with a good lease were refused", x.Refused).unlessStalled(lossy),
		promised(x.Lost == 0, "%d leases of living holders were lost", x.Lost).unlessStalled(lossy),

		promised(f.Cause != "", "the loss was never reported to the frozen holder"),
		promised(f.Told <= f.Awake+f.ToldLimit, "the loss was reported to the frozen holder only after %v (awake after %v, promised: %v later)", f.Told, f.Awake, f.ToldLimit).
			unlessStalled(within(f.Told, f.Awake+f.ToldLimit)),
		promised(f.StaleWrites > 0, "the frozen holder did not write"),
		promised(f.StaleRefused == f.StaleWrites, "%d of %d stale writes were accepted", f.StaleWrites-f.StaleRefused, f.StaleWrites),

		promised(k.Free > 0, "the lock of the killed holder was never free again"),
		promised(k.Free <= k.FreeLimit, "the lock of the killed holder was free only after %v (promised: %v)", k.Free, k.FreeLimit).
			unlessStalled(within(k.Free, k.FreeLimit)),

		promised(l.Renewals > 0, "no lease was renewed").unlessStalled(lossy),
		promised(l.Lost == 0, "%d leases were lost for no reason", l.Lost).unlessStalled(lossy),
		promised(l.Told == l.Deleted, "of %d deleted leases only %d losses were reported", l.Deleted, l.Told).unlessStalled(lossy),
		promised(l.ToldIn <= l.ToldLimit, "the loss of a deleted lease was reported only after %v (promised: %v)", l.ToldIn, l.ToldLimit).
			unlessStalled(within(l.ToldIn, l.ToldLimit)),
		// The hook of a lost lease runs in a goroutine of its own.
		promised(r.frugal(), "goroutines grew from %d to %d with the number of leases", l.GoroutinesTenth, l.Goroutines).unlessStalled(lossy),

		promised(t.Fired > 0, "no timeout was measured"),
		promised(t.Early == 0, "%d of %d timeouts fired early", t.Early, t.Fired),

		promised(len(r.Failures) == 0, "failures: %q", r.Failures).unlessStalled(lossy),
	}
}

// hold is the time in which a process could believe to have the lock alone.
type hold struct {
	from, until hostclock.Instant
	token       int64
}

// judgeHolds counts the holds that began before an earlier one had ended, and the
// tokens that are not above those before them.
func judgeHolds(holds []hold) (overlaps, disorder int) {
	holds = slices.Clone(holds)
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(holds); i++ {
		if holds[i].token <= holds[i-1].token {
			disorder++
		}
	}
	var end hostclock.Instant
	for i, h := range holds {
		if i > 0 && h.from < end {
			overlaps++
		}
		end = max(end, h.until)
	}
	return overlaps, disorder
}

// timerReportOf sorts the lateness of each timeout that fired.
func timerReportOf(tick time.Duration, lateness []time.Duration) timerReport {
	r := timerReport{Tick: tick, Fired: len(lateness)}
	if r.Fired == 0 {
		return r
	}
	slices.Sort(lateness)
	for _, late := range lateness {
		if late < 0 {
			r.Early++
		}
	}
	percentile := func(p int) time.Duration { return lateness[(len(lateness)-1)*p/100] }
	r.P50, r.P99, r.Max = percentile(50), percentile(99), lateness[len(lateness)-1]
	return r
}
