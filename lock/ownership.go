package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/leasewheel/leasewheel/renewal"
)

// ownership is one owner's possession of one lock. Every lease that was taken
// under it shares it; it ends when the last of them is unlocked.
type ownership struct {
	locker *Locker
	hold   Hold // never changed; the watchdog's Ref points at it
	lease  *renewal.Lease
	token  int64
	relay  *relay // nil if the lease is not to be passed on

	// doubtful: a request of the acquisition may yet arrive after the release.
	doubtful bool

	// mu makes one change of count at a time, its request to the store included:
	// the store is told absolute counts, which must arrive in order.
	mu    sync.Mutex
	count atomic.Int64 // leases not yet unlocked; 0 once the ownership has ended

	first Lease // the lease of the grant, here to save an allocation
}

// newOwnership returns an ownership whose lease is not watched yet.
func newOwnership(l *Locker, h Hold, token int64, doubtful bool) *ownership {
	own := &ownership{locker: l, hold: h, token: token, doubtful: doubtful}
	own.count.Store(1)
	own.first.own = own
	return own
}

// spec is what the watchdog is told to keep for the acquisition.
func (o *ownership) spec(a *acquisition) renewal.Spec {
	onLost := a.options.OnLost
	if o.relay != nil {
		onLost = func(err error) {
			o.locker.finish(o.relay)
			if a.options.OnLost != nil {
				a.options.OnLost(err)
			}
		}
	}
	return renewal.Spec{
		Key:       o.hold.Name,
		Owner:     o.hold.Owner,
		Ref:       &o.hold,
		TTL:       a.hold.TTL,
		Fixed:     a.options.Fixed,
		MaxHold:   a.options.MaxHold,
		Alive:     a.options.Alive,
		Heartbeat: a.options.Heartbeat,
		Context:   context.WithoutCancel(a.ctx),
		OnLost:    onLost,
	}
}

// ownershipKey finds an ownership in a context.
type ownershipKey struct {
	locker *Locker
	kind   Kind
	name   string
}

// ownershipIn returns the ownership of the lock that ctx carries, or nil.
func ownershipIn(ctx context.Context, l *Locker, kind Kind, name string) *ownership {
	o, _ := ctx.Value(ownershipKey{l, kind, name}).(*ownership)
	return o
}

// with returns a context derived from ctx that carries the ownership.
func (o *ownership) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownershipKey{o.locker, o.hold.Kind, o.hold.Name}, o)
}

// again takes the lock once more. It returns nil and no error if the ownership
// has ended by an Unlock. The store is asked, so that its count is right for
// whoever looks, and so that a lock that is lost is not taken for held.
func (o *ownership) again(a acquisition) (*Lease, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count.Load() == 0 {
		return nil, nil
	}
	if err := o.lease.Err(); err != nil {
		return nil, err
	}
	h := o.hold
	h.Count = o.count.Load() + 1
	a.hold = &h
	g, err := o.locker.ask(&a)
	if err != nil {
		return nil, err
	}
	if g.Verdict != Granted {
		return nil, &LostError{Key: h.Name, Cause: renewal.Deleted}
	}
	o.count.Store(h.Count)
	return &Lease{own: o}, nil
}

// held reports whether the lock was not yet unlocked for the last time. It waits for
// no request.
func (o *ownership) held() bool { return o.count.Load() > 0 }

// drop gives one hold back, the last one for good.
func (o *ownership) drop(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.hold
	h.Count = o.count.Add(-1)
	if h.Count > 0 {
		if err := o.lease.Err(); err != nil {
			return err
		}
		return o.tell(ctx, &h)
	}
	if o.locker.passOn(o) {
		return nil
	}
	lost := o.stop(ctx)
	if lost != nil {
		o.locker.orphans.take(&h, true)
		return lost
	}
	if o.doubtful {
		defer o.locker.orphans.take(&h, true)
	}
	return o.tell(ctx, &h)
}

// stop ends renewal. It returns the loss if the lease was lost before. It waits
// for a renewal in flight, but not for ever: one that comes after the release
// finds nothing to renew.
func (o *ownership) stop(ctx context.Context) error {
	bounded, cancel := o.locker.bound(context.WithoutCancel(ctx), o.hold.TTL)
	defer cancel()
	_ = o.lease.Stop(bounded)
	if err := o.lease.Err(); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// tell lowers the owner's holds at the store to h.Count.
func (o *ownership) tell(ctx context.Context, h *Hold) error {
	held, err := o.locker.release(ctx, h)
	switch {
	case err != nil && h.Count > 0:
		return fmt.Errorf("%w; %q is held on, as its owner has other holds of it", err, h.Name)
	case err != nil:
		return fmt.Errorf("%w; the store frees %q by itself within its TTL of %v", err, h.Name, h.TTL)
	case !held:
		return &LostError{Key: h.Name, Cause: renewal.Deleted}
	}
	return nil
}
