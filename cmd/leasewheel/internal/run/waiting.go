//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// waitingRefresh is how often a waiting run asks who holds the lock.
const waitingRefresh = 5 * time.Second

// showWaiting shows on a terminal that run waits, for how long, and who holds the lock,
// until the returned function is called. With --verbose, there are messages instead.
func (r *command) showWaiting(ctx context.Context, begin time.Time) (stop func()) {
	if r.verbose || !terminal.Is(os.Stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var (
		mu   sync.Mutex
		last holding
		done sync.WaitGroup
	)
	done.Go(func() {
		for ctx.Err() == nil {
			if now, err := r.holder(ctx); err == nil {
				mu.Lock()
				last = now
				mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(waitingRefresh):
			}
		}
	})
	m := terminal.StartMeter(os.Stderr, func() string {
		mu.Lock()
		defer mu.Unlock()
		return waitingLine(r.name, begin, time.Now(), last)
	})
	return func() {
		m.Stop()
		cancel()
		done.Wait()
	}
}

// holding is who holds a lock. Without an owner it is unknown.
type holding struct {
	owner string // in words
	since time.Time
	more  int64 // other holders
	inUse int64 // permits, which have no owner
}

// holder returns who holds the lock that run waits for.
func (r *command) holder(ctx context.Context) (h holding, err error) {
	if r.kinds.kind() == driver.KindPermit {
		info, err := r.locker.Inspect(ctx, r.name, driver.KindPermit)
		return holding{inUse: info.HolderCount}, err
	}
	info, err := r.locker.Inspect(ctx, r.name, driver.KindMutex)
	if err != nil || len(info.Holders) == 0 {
		return h, err
	}
	first := &info.Holders[0]
	return holding{owner: output.Client(first.Client, first.Owner), since: first.Since, more: info.HolderCount - 1}, nil
}

// waitingLine is the line of a run that waits.
func waitingLine(name string, begin, now time.Time, h holding) string {
	line := fmt.Sprintf("waiting %v for %s", output.Seconds(now.Sub(begin)), output.Quoted(name))
	switch {
	case h.inUse > 0:
		return line + ", permits in use: " + output.Grouped(h.inUse)
	case h.owner == "":
		return line
	}
	return line + ", " + h.text(now)
}

// text names the first holder, and for how long it has held the lock.
func (h *holding) text(now time.Time) string {
	text := "held by " + h.owner
	if h.more > 0 {
		text += fmt.Sprintf(" +%s", output.Grouped(h.more))
	}
	if !h.since.IsZero() {
		text += fmt.Sprintf(" for %v", output.Seconds(now.Sub(h.since)))
	}
	return text
}

// namingHolder returns the error of a refusal that names the holder, or err if the holder is
// unknown, or this user may not look.
func (r *command) namingHolder(ctx context.Context, err error) error {
	refusal, ok := errors.AsType[*lock.NotAcquiredError](err)
	if !ok || refusal.Foreign || refusal.OtherKind {
		return err
	}
	h, lookErr := r.holder(ctx)
	if lookErr != nil || h.owner == "" {
		return err
	}
	text := fmt.Sprintf("lock %q not acquired: %s", r.name, h.text(time.Now()))
	if refusal.TTL > 0 {
		text += fmt.Sprintf(" (TTL %v)", output.Round(refusal.TTL))
	}
	return errors.New(text)
}
