//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
)

// demo is one run: the processes that contend, the keeper of many leases beside them, and
// the observations of both. One goroutine runs it.
type demo struct {
	flags    *flags
	job      workerJob
	server   *connect.Server
	embedded bool // the server ends with the demo
	keeper   *keeper

	clock  hostclock.Clock
	begin  time.Time
	events chan actorEvent
	actors map[*actor]struct{} // the running ones
	cast   int                 // how many were started

	holds  []hold
	told   map[int64]bool // tokens of leases whose loss was reported
	report report
	lives  *timeline

	scene atomic.Pointer[string] // the present scene, for the meter
	tally atomic.Int64           // acquisitions, for the meter
	meter *terminal.Meter
}

func newDemo(f *flags, job workerJob, s *connect.Server, k *keeper) (*demo, error) {
	clock, err := hostclock.New()
	if err != nil {
		return nil, err
	}
	d := &demo{
		flags: f, job: job, server: s, keeper: k,
		clock: clock, begin: time.Now(),
		events: make(chan actorEvent, 64), actors: make(map[*actor]struct{}),
		told: make(map[int64]bool),
	}
	d.lives = &timeline{begin: clock.Of(d.begin)}
	d.report = report{Processes: f.processes, TTL: job.TTL, Failures: []string{}}
	d.announce("starting")
	return d, nil
}

// run plays the demo and returns the observations, even with an error: then there are fewer.
func (d *demo) run(ctx context.Context) (*report, error) {
	d.meter = terminal.StartMeter(os.Stderr, d.progress)
	stalls := watchStalls()
	err := d.play(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the signal, in whatever step it came
	}
	d.report.Stalls = stalls.end()
	d.report.Elapsed = time.Since(d.begin)
	d.cleanUp(context.WithoutCancel(ctx))
	d.meter.Stop()
	d.report.unfinished = err
	d.conclude()
	return &d.report, err
}

// play runs the scenes.
func (d *demo) play(ctx context.Context) error {
	if err := d.keeper.probe(); err != nil {
		return err
	}
	d.announce("%d processes contend, %d leases are taken", d.flags.processes, d.flags.leases)
	for range d.flags.processes {
		if err := d.start(); err != nil {
			return err
		}
	}
	takeCtx, stopTaking := context.WithCancel(ctx)
	var taking errgroup.Group
	defer taking.Wait() //nolint:errcheck // reported below, unless the demo has failed before
	defer stopTaking()
	taking.Go(func() error { return d.keeper.take(takeCtx, d.flags.leases) })
	contended := time.NewTimer(time.Duration(d.flags.duration))
	defer contended.Stop()
	if err := d.awaitHolds(ctx, 3*d.flags.processes, 0); err != nil {
		return err
	}
	if err := taking.Wait(); err != nil {
		return fmt.Errorf("taking leases: %w", err)
	}
	for _, scene := range []func(context.Context) error{d.freeze, d.deleteLeases, d.kill} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	d.announce("%d processes contend", d.flags.processes)
	if _, err := d.await(ctx, contended.C, func(actorEvent) bool { return false }); err != nil {
		return err
	}
	return d.stopAll(ctx)
}

// freeze stops a holder for longer than its lease. Meanwhile others acquire the lock and
// write; then it continues, and writes.
func (d *demo) freeze(ctx context.Context) error {
	holding, err := d.pickHolder(ctx)
	if err != nil {
		return err
	}
	victim := holding.actor
	if err := victim.signal(unix.SIGSTOP); err != nil {
		return err
	}
	frozen := time.Now()
	d.lives.froze(victim.id, holding.Token, d.clock.Of(frozen))
	d.announce("process %d is frozen while it holds the lock", victim.id)
	if err := d.awaitHolds(ctx, d.flags.processes, holding.Token); err != nil {
		return err
	}
	expired := time.NewTimer(time.Until(frozen.Add(d.job.TTL + d.job.TTL/4)))
	defer expired.Stop()
	if _, err := d.await(ctx, expired.C, func(actorEvent) bool { return false }); err != nil {
		return err
	}

	victim.order(orderWrite) // it reads this when it continues
	thawed := d.clock.Now()
	if err := victim.signal(unix.SIGCONT); err != nil {
		return err
	}
	d.lives.thawed(victim.id, holding.Token, thawed)
	f := &d.report.Frozen
	f.For, f.ToldLimit = time.Since(frozen), d.keeper.wheel.Tick()+noticeLimit
	d.announce("process %d continues, and writes", victim.id)
	for wrote := false; !wrote || f.Cause == ""; {
		e, err := d.await(ctx, nil, func(e actorEvent) bool { return e.actor == victim })
		switch {
		case err != nil:
			return err
		case e.over:
			return nil // recorded as a failure; no loss was reported to it
		case e.Kind == eventLost && e.Token == holding.Token:
			f.Cause, f.Told, f.Awake = e.Cause, e.At.Since(thawed), e.Awake.Since(thawed)
		case e.Kind == eventStale:
			wrote = true
			f.StaleWrites++
			if !e.Accepted {
				f.StaleRefused++
			}
		}
	}
	d.meter.Note("frozen holder: loss reported after %v, %d of %d stale writes refused", output.Round(f.Told), f.StaleRefused, f.StaleWrites)
	return nil
}

// kill kills a holder, waits for the next one, and starts a substitute.
func (d *demo) kill(ctx context.Context) error {
	holding, err := d.pickHolder(ctx)
	if err != nil {
		return err
	}
	victim := holding.actor
	d.announce("process %d is killed while it holds the lock", victim.id)
	victim.doomed = true
	if err := victim.signal(unix.SIGKILL); err != nil {
		return err
	}
	killed := d.clock.Now()
	d.lives.killed(victim.id, holding.Token, killed)
	d.holds = append(d.holds, hold{holding.From, killed, holding.Token})
	k := &d.report.Killed
	k.FreeLimit = d.job.TTL + time.Second
	next, err := d.await(ctx, nil, func(e actorEvent) bool {
		return e.Kind == eventHeld && e.Token > holding.Token
	})
	if err != nil {
		return err
	}
	k.Free = next.From.Since(killed)
	d.meter.Note("killed holder: its lock was free after %v", output.Round(k.Free))
	return d.start()
}

// deleteLeases deletes a few of the keeper's leases on the server.
func (d *demo) deleteLeases(ctx context.Context) error {
	d.announce("%d leases are deleted on the server", keeperDeletes)
	l := &d.report.Leases
	l.ToldLimit = d.job.TTL / 2
	var scene errgroup.Group
	done := make(chan struct{})
	scene.Go(func() (err error) {
		defer close(done)
		l.Deleted, l.Told, l.ToldIn, err = d.keeper.deleteSome(ctx, d.job.TTL)
		return err
	})
	for {
		select { // the processes continue meanwhile
		case e := <-d.events:
			d.note(e)
			continue
		case <-done:
		}
		break
	}
	if err := scene.Wait(); err != nil {
		return fmt.Errorf("deleting leases: %w", err)
	}
	d.meter.Note("deleted leases: %d of %d losses reported, the last after %v", l.Told, l.Deleted, output.Round(l.ToldIn))
	return nil
}

// pickHolder makes a process keep the lock when it next acquires it, and returns the
// event of that acquisition.
func (d *demo) pickHolder(ctx context.Context) (actorEvent, error) {
	var chosen *actor // the one that has run for longest
	for a := range d.actors {
		if chosen == nil || a.id < chosen.id {
			chosen = a
		}
	}
	chosen.order(orderHold)
	e, err := d.await(ctx, nil, func(e actorEvent) bool {
		return e.actor == chosen && (e.Kind == eventHolding || e.over)
	})
	if err == nil && e.over {
		err = fmt.Errorf("process %d ended: %w", chosen.id, e.err)
	}
	return e, err
}

// start starts one more process.
func (d *demo) start() error {
	d.cast++
	a, err := startActor(d.cast, d.job, d.events)
	if a != nil {
		d.actors[a] = struct{}{}
		d.lives.started(a.id, d.clock.Now())
	}
	return err
}

// stopAll orders every process to stop and waits until all have.
func (d *demo) stopAll(ctx context.Context) error {
	d.announce("stopping")
	for a := range d.actors {
		a.order(orderStop)
	}
	for len(d.actors) > 0 {
		if _, err := d.await(ctx, nil, func(e actorEvent) bool { return e.over }); err != nil {
			return err
		}
	}
	value, err := d.server.Client.HGet(ctx, d.job.Counter, "value").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("reading the counter: %w", err)
	}
	d.report.Exclusion.Counter = value
	return nil
}

// awaitHolds waits until n more acquisitions with a token above this one were seen.
func (d *demo) awaitHolds(ctx context.Context, n int, token int64) error {
	_, err := d.await(ctx, nil, func(e actorEvent) bool {
		if e.Kind == eventHeld && e.Token > token {
			n--
		}
		return n <= 0
	})
	return err
}

// await records events until one of them is wanted, or until timeout, when it returns
// none.
func (d *demo) await(ctx context.Context, timeout <-chan time.Time, wanted func(actorEvent) bool) (actorEvent, error) {
	for {
		select {
		case e := <-d.events:
			d.note(e)
			if wanted(e) {
				return e, nil
			}
			if len(d.actors) == 0 {
				return e, fmt.Errorf("no process is left, the last ended: %w", e.err)
			}
		case <-timeout:
			return actorEvent{}, nil
		case <-ctx.Done():
			return actorEvent{}, context.Cause(ctx)
		}
	}
}

// note adds an event to the observations.
func (d *demo) note(e actorEvent) {
	x := &d.report.Exclusion
	d.lives.note(e.actor.id, e.workerEvent)
	switch {
	case e.over:
		d.lives.ended(e.actor.id, d.clock.Now())
		delete(d.actors, e.actor)
		if e.err != nil && !e.actor.doomed {
			d.report.Failures = append(d.report.Failures, fmt.Sprintf("process %d: %v", e.actor.id, e.err))
		}
	case e.Kind == eventLost:
		d.told[e.Token] = true
	case e.Kind == eventHeld, e.Kind == eventStale:
		x.Acquisitions++
		d.tally.Store(int64(x.Acquisitions))
		d.holds = append(d.holds, hold{e.From, e.Until, e.Token})
		lost := d.told[e.Token]
		switch {
		case e.Accepted:
			x.Writes++
		case e.Kind == eventHeld && !lost:
			x.Refused++
		}
		if e.Kind == eventHeld && lost {
			x.Lost++
		}
	}
}

// announce sets the present scene.
func (d *demo) announce(format string, args ...any) {
	scene := fmt.Sprintf(format, args...)
	d.scene.Store(&scene)
}

// progress is the meter's line.
func (d *demo) progress() string {
	elapsed := time.Since(d.begin)
	return fmt.Sprintf("%5.1fs %s  %s · %s acquisitions · %s leases, %s renewals",
		elapsed.Seconds(), terminal.Bar(elapsed.Seconds(), d.flags.expected().Seconds(), 12), *d.scene.Load(),
		output.Grouped(d.tally.Load()), output.Grouped(d.keeper.taken.Load()), output.Grouped(d.keeper.store.renewals.Load()))
}

// cleanUp ends the remaining processes and removes all keys from a server that outlives
// the demo. Leases that cannot be released expire within a TTL.
func (d *demo) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for a := range d.actors {
		a.doomed = true
		a.signal(unix.SIGKILL) //nolint:errcheck // it may be gone
	}
	for len(d.actors) > 0 {
		d.note(<-d.events)
	}
	d.keeper.life.addTo(d.lives, d.clock)
	d.lives.finish(d.clock.Now())
	d.report.Leases.Lost = d.keeper.lossCount() - d.report.Leases.Told
	if !d.embedded {
		d.announce("giving back %d leases", d.flags.leases)
		err := errors.Join(d.keeper.release(ctx), d.server.Client.Del(ctx, d.job.Counter).Err())
		if err != nil {
			d.report.Failures = append(d.report.Failures, fmt.Sprintf("giving back the leases: %v", err))
		}
	}
	if err := d.keeper.close(); err != nil {
		d.report.Failures = append(d.report.Failures, fmt.Sprintf("closing: %v", err))
	}
}

// conclude turns the observations into the report.
func (d *demo) conclude() {
	r := &d.report
	r.Exclusion.Overlaps, r.Exclusion.Disorder = judgeHolds(d.holds)
	r.Leases.Count = len(d.keeper.leases)
	r.Leases.Renewals, r.Leases.Batches = d.keeper.store.renewals.Load(), d.keeper.store.batches.Load()
	r.Leases.Goroutines, r.Leases.GoroutinesTenth = d.keeper.all, d.keeper.tenth
	r.Timer = timerReportOf(d.keeper.wheel.Tick(), d.keeper.measured())
	r.lives = d.lives
	if r.unfinished == nil {
		r.judge()
	}
}
