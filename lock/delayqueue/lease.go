package delayqueue

import (
	"context"

	"github.com/leasewheel/leasewheel/renewal"
)

// leases renews the leases of a queue's messages for the watchdog. A lease's Key is the
// message's id, its Owner the token of the claim.
type leases struct{ queue *Queue }

// Group returns the address of the node that keeps the queue.
func (l leases) Group(string, any) string { return l.queue.store.NodeOf(l.queue.keys[0]) }

// Renew prolongs leases.
func (l leases) Renew(ctx context.Context, items []renewal.Item) {
	args := make([]any, 0, 3*len(items))
	for _, lease := range items {
		args = append(args, lease.Key, lease.Owner, lease.TTL.Milliseconds())
	}
	reply, err := l.send(ctx, args...)
	outcomes, err := codes(len(items), reply, err)
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

// send runs the script, with those keys alone that a queue with a leased message always has.
func (l leases) send(ctx context.Context, args ...any) ([]any, error) {
	return l.queue.once(ctx, renewScript, []string{l.queue.keys[leasedKey], l.queue.keys[recordsKey]}, args...)
}
