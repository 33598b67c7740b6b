package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// Options configures how one lock is held. The zero value renews until Unlock.
type Options struct {
	// TTL overrides [Config.TTL] for this lock. Default: the locker's.
	TTL time.Duration
	// Fixed disables renewal: the lease is lost after TTL.
	Fixed bool
	// MaxHold ends the lease this long after its grant, even if the holder is alive. The store
	// keeps it for up to a TTL longer.
	MaxHold time.Duration
	// MinHold keeps the lock taken for at least this long after its grant: an earlier Unlock
	// leaves it to expire then, which waiters notice by their [Config.Poll]. So a job that is
	// scheduled on hosts whose clocks differ by less runs once. A lock that is lost, or whose
	// holder dies, becomes free as always. No read-write lock has it.
	MinHold time.Duration
	// Alive is called before each renewal, in its own goroutine. If it returns false, the
	// lease is lost at once; if it does not return, when its time is over.
	Alive func() bool
	// Heartbeat is the longest pause between two calls of [Lease.Beat]; after a longer one the
	// lease is lost. Default: no heartbeat is needed.
	Heartbeat time.Duration
	// Retry decides when a waiter sends its request again without a message from the store.
	Retry retry.Policy
	// Passes is how often Unlock may hand the lock to the next waiter in this process without
	// a request to the store, if it uses Passes and the same TTL. Each holder has its own
	// lease and a larger fencing token; [Lease.Owner] stays. It works with [Locker.Mutex] and
	// renewed leases, not on quorums and plain locks. At most [driver.MaxPasses].
	Passes int
	// PassFor is how long after the store's grant the lock is handed off. Default: 1 s.
	PassFor time.Duration
	// OnLost is called once if the lease is lost, in its own goroutine, with a *[LostError].
	OnLost func(error)
}

// defaultPassFor is the default of [Options.PassFor].
const defaultPassFor = time.Second

// validate returns an error if o is invalid for a kind of lock, on a wheel with the given
// tick.
func (o *Options) validate(kind driver.Kind, tick time.Duration) error {
	switch {
	case o.Passes < 0 || o.Passes > driver.MaxPasses:
		return fmt.Errorf("lock: Passes %d is outside 0 … %d", o.Passes, driver.MaxPasses)
	case o.PassFor < 0:
		return fmt.Errorf("lock: PassFor %v is negative; accepted are positive durations, 0 for %v", o.PassFor, defaultPassFor)
	case o.Passes > 0 && !kinds[kind].grants:
		return fmt.Errorf("lock: Passes is for the mutex; a %v cannot be handed off", kind)
	case o.Passes > 0 && o.Fixed:
		return errors.New("lock: Passes needs a renewed lease; do not set Fixed")
	case o.MaxHold < 0:
		return fmt.Errorf("lock: MaxHold %v is negative; accepted are positive durations, 0 for no limit", o.MaxHold)
	case o.MinHold < 0 || o.MinHold > driver.MaxTTL:
		return fmt.Errorf("lock: MinHold %v is outside 0 … %v", o.MinHold, driver.MaxTTL)
	case o.MinHold > 0 && !kinds[kind].minHold:
		return errors.New("lock: MinHold is for mutexes, fair locks and permits: the holders of a read-write lock share one TTL")
	case o.MaxHold > 0 && o.MinHold > o.MaxHold:
		return fmt.Errorf("lock: MinHold %v is longer than MaxHold %v", o.MinHold, o.MaxHold)
	case o.MinHold > 0 && o.Passes > 0:
		return errors.New("lock: MinHold keeps the lock from the next holder, and Passes hands it on: set one of them")
	case o.Heartbeat < 0:
		return fmt.Errorf("lock: Heartbeat %v is negative; accepted are positive durations, 0 for none", o.Heartbeat)
	case o.TTL != 0:
		return validateTTL(o.TTL, tick)
	}
	return nil
}
