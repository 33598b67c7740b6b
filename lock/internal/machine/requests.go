package machine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// Requests are those of a store that is a machine and storage: each is a step on the state of a
// name. A store embeds it, and adds Subscribe, Announce and Close.
type Requests struct {
	// Step makes a step on the state of a name, at an instant, stores it, and delivers the
	// messages. It makes none once ctx has ended.
	Step func(ctx context.Context, name string, step func(s *State, now time.Time) []Message) error
	// Client returns the record of a client, if there is one. It is called within a step.
	Client func(id string) (driver.Client, bool)
	// Names returns the names with a prefix that may have something, in their order.
	Names func(ctx context.Context, prefix string) ([]string, error)
}

// Supports returns nil for every kind.
func (r *Requests) Supports(k driver.Kind) error {
	if k > driver.KindLatch {
		return fmt.Errorf("lock: %v: %w", k, driver.ErrUnsupported)
	}
	return nil
}

// Acquire requests a hold, see [driver.Store].
func (r *Requests) Acquire(ctx context.Context, h *driver.Hold) (a driver.Answer, err error) {
	err = r.Step(ctx, h.Name, func(s *State, now time.Time) (sent []Message) {
		a, sent = s.Acquire(now, h)
		return sent
	})
	return a, err
}

// AcquireProposing requests a mutex and proposes its token, see [driver.Fencer].
func (r *Requests) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	err = r.Step(ctx, h.Name, func(s *State, now time.Time) (sent []Message) {
		if a, sent = s.AcquireProposing(now, h, token); a.Verdict == driver.Granted {
			clock = now
		}
		return sent
	})
	return a, clock, err
}

// Fence raises the last token of a mutex, see [driver.Fencer].
func (r *Requests) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	err = r.Step(ctx, h.Name, func(s *State, now time.Time) []Message {
		held = s.Fence(now, h, token)
		return nil
	})
	return held, err
}

// Release lowers the holds of an owner, see [driver.Store].
func (r *Requests) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	err = r.Step(ctx, h.Name, func(s *State, now time.Time) (sent []Message) {
		held, sent = s.Release(now, h)
		return sent
	})
	return held, err
}

// Group returns the same group for all leases, see [renewal.Renewer].
func (r *Requests) Group(string, any) string { return "" }

// Renew prolongs leases, see [renewal.Renewer].
func (r *Requests) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		item := &items[i]
		item.Err = r.Step(ctx, item.Key, func(s *State, now time.Time) []Message {
			s.RenewItem(now, item)
			return nil
		})
		if item.Err != nil {
			item.Outcome, item.Given = renewal.Unknown, 0 // the step was not stored
		}
	}
}

// RenewItem prolongs a lease of the name, and has its outcome in the item.
func (s *State) RenewItem(now time.Time, item *renewal.Item) {
	kind, permits, _ := driver.ParseRef(item.Ref)
	a := s.Renew(now, &driver.Hold{Kind: kind, Owner: item.Owner, TTL: item.TTL, Semaphore: permits})
	switch item.Given = a.Lease; a.Verdict {
	case driver.Granted:
		item.Outcome = renewal.Renewed
	case driver.Refused:
		item.Outcome = renewal.Taken
	case driver.NotHeld:
		item.Outcome = renewal.Gone
	}
}

// Count reads or changes a count, see [driver.Counter].
func (r *Requests) Count(ctx context.Context, c *driver.Count) (counted driver.Counted, err error) {
	err = r.Step(ctx, c.Name, func(s *State, now time.Time) (sent []Message) {
		counted, sent = s.Count(now, c)
		return sent
	})
	return counted, err
}

// KeepPlaces prolongs places in the queue of a fair lock, see [driver.PlaceKeeper].
func (r *Requests) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	err = r.Step(ctx, name, func(s *State, now time.Time) []Message {
		ask = s.KeepPlaces(now, owners, place)
		return nil
	})
	return ask, err
}

// Inspect returns the state of a lock, see [driver.Inspector].
func (r *Requests) Inspect(ctx context.Context, name string, as driver.Kind) (info driver.Info, err error) {
	err = r.Step(ctx, name, func(s *State, now time.Time) []Message {
		info = s.Inspect(now, as)
		Identify(&info, name, r.Client)
		return nil
	})
	return info, err
}

// ForceRelease frees a lock regardless of its holder, see [driver.Inspector].
func (r *Requests) ForceRelease(ctx context.Context, name string) (info driver.Info, err error) {
	err = r.Step(ctx, name, func(s *State, now time.Time) (sent []Message) {
		info, sent = s.ForceRelease(now)
		Identify(&info, name, r.Client)
		return sent
	})
	return info, err
}

// List yields the held locks, see [driver.Inspector].
func (r *Requests) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return Held(ctx, prefix, wanted, r.Names, r.Inspect)
}

// Held yields the held locks of a store, which it inspects one by one.
func Held(ctx context.Context, prefix string, wanted func(string) bool, all func(context.Context, string) ([]string, error),
	inspect func(context.Context, string, driver.Kind) (driver.Info, error),
) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		names, err := all(ctx, prefix)
		if err != nil && !yield(driver.Info{}, fmt.Errorf("list: %w", err)) {
			return
		}
		for _, name := range names {
			if !wanted(name) {
				continue
			}
			info, err := inspect(ctx, name, driver.KindMutex)
			if err != nil {
				if !yield(driver.Info{}, fmt.Errorf("lock %q: %w", name, err)) || ctx.Err() != nil {
					return
				}
				continue
			}
			if info.Held() && !yield(info, nil) {
				return
			}
		}
	}
}

// Identify adds the name, and the records of the clients. client returns a client's, and whether it has one.
func Identify(info *driver.Info, name string, client func(id string) (driver.Client, bool)) {
	known := func(owner string) (c driver.Client, announced bool) {
		id := driver.ClientOf(owner)
		if c, announced = client(id); !announced {
			c = driver.Client{ID: id}
		}
		return c, announced
	}
	info.Name = name
	info.Holders = info.Holders[:min(len(info.Holders), driver.MaxTold)]
	info.Waiters = info.Waiters[:min(len(info.Waiters), driver.MaxTold)]
	for i := range info.Holders {
		h := &info.Holders[i]
		var announced bool
		if h.Client, announced = known(h.Owner); announced && info.Kind != driver.KindRead && info.Kind != driver.KindPermit { // they share a token
			h.Since = time.UnixMicro(info.Token)
		}
	}
	for i := range info.Waiters {
		w := &info.Waiters[i]
		w.Client, _ = known(w.Owner)
	}
}
