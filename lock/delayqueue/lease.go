package delayqueue

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// localTTL returns how long the watchdog trusts a lease of the given length. It learns
// of a lease's end up to a tick late, and must not be later than the server.
func (e *engine) localTTL(ttl time.Duration) time.Duration { return ttl - e.wheel.Tick() }

// serverTTL returns the length of a lease that the watchdog trusts for the given time.
func (e *engine) serverTTL(ttl time.Duration) time.Duration { return ttl + e.wheel.Tick() }

// leases prolongs the leases of a queue's messages for the watchdog. A lease's Key
// is the message's id, its Owner the token of the claim.
type leases struct {
	queue  *Queue
	engine *engine
}

// Group names the node that the queue lives on.
func (l leases) Group(string) string { return l.queue.store.Group(l.queue.keys[0]) }

// Renew prolongs leases.
func (l leases) Renew(ctx context.Context, items []renewal.Item) {
	args := make([]any, 0, 3*len(items))
	for i := range items {
		lease := items[i].Lease
		args = append(args, lease.Key(), lease.Owner(), l.engine.serverTTL(lease.TTL()).Milliseconds())
	}
	reply, err := l.queue.once(ctx, renewScript, args...)
	var outcomes []int64
	if err == nil {
		outcomes, err = codes(reply, len(items))
	}
	for i := range items {
		switch {
		case err != nil:
			items[i].Err = err
		case outcomes[i] == 1:
			items[i].Outcome = renewal.Renewed
		case outcomes[i] == 0:
			items[i].Outcome = renewal.Gone
		default:
			items[i].Outcome = renewal.Taken
		}
	}
}
