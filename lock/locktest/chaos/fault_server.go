//go:build linux

package chaos

import (
	"context"
	"fmt"
	"time"
)

var serverFaults = []faultKind{
	{frozen, 2, everywhere, 20 * time.Millisecond, 4 * time.Second, freeze},
	{mute, 25, parted, time.Second, time.Minute, freeze},
	{paused, 2, everywhere, 20 * time.Millisecond, 3 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		n, mode := r.target(f), []string{"ALL", "WRITE"}[f.Variant%2]
		w := r.journal.open(window{Kind: paused, Place: -1, Node: n.number})
		done := r.deposes(hard)
		_ = n.do(ctx, hard, "CLIENT", "PAUSE", f.For.Milliseconds()+1, mode)
		<-ctx.Done()
		_ = n.do(hard, hard, "CLIENT", "UNPAUSE")
		r.journal.shut(w)
		done()
	}},
	{restarted, 5, everywhere, 0, 2 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		w := r.journal.open(window{Kind: restarted, Place: -1, Node: n.number})
		var loss *window
		if !r.plan.Keeps && r.plan.Site == single {
			loss = r.journal.open(window{Kind: dataLost, Place: -1, Node: n.number})
		}
		done := r.deposes(hard)
		n.kill()
		if f.Variant%3 > 0 { // most are quick
			<-ctx.Done()
		}
		if err := n.launch(); err != nil {
			r.trouble("%v", err)
		}
		if loss != nil {
			r.journal.shut(loss)
		}
		r.journal.shut(w)
		done()
	}},
	{flushed, 1, everywhere, 100 * time.Millisecond, 3 * time.Second, again(10*time.Millisecond, func(ctx context.Context, n *node, _ faultPlan) {
		_ = n.admin.Do(ctx, "SCRIPT", "FLUSH").Err()
	})},
	{clients, 4, everywhere, 0, 3 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		done := func() {}
		if f.Variant%3 == 0 { // sentinels are normal clients, and reconnect once a second
			done = r.deposes(hard)
		}
		again(150*time.Millisecond, func(ctx context.Context, n *node, f faultPlan) {
			_ = n.admin.Do(ctx, "CLIENT", "KILL", "TYPE", []string{"NORMAL", "PUBSUB", "PUBSUB"}[f.Variant%3]).Err()
		})(ctx, hard, r, f)
		done()
	}},
	{stepped, 6, alone, 0, time.Second, func(_, _ context.Context, r *round, f faultPlan) {
		if r.servers.clock == nil {
			return
		}
		d := f.Size % (20 * time.Second)
		switch f.Variant % 4 {
		case 0, 1:
			d = -20*time.Second - d
		case 2:
			d = -d
		}
		w := r.journal.open(window{Kind: stepped, Place: -1, Node: -1, Size: d})
		r.servers.clock.step(d)
		r.journal.shut(w)
	}},
}

// freeze stops a server.
func freeze(ctx, hard context.Context, r *round, f faultPlan) {
	n := r.target(f)
	w := r.journal.open(window{Kind: f.Kind, Place: -1, Node: n.number})
	done := r.deposes(hard)
	n.freeze()
	<-ctx.Done()
	n.thaw()
	r.journal.shut(w)
	done()
}

// again returns the run function of a fault that happens in an instant, repeatedly.
func again(every time.Duration, once func(ctx context.Context, n *node, f faultPlan)) func(ctx, hard context.Context, r *round, f faultPlan) {
	return func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		w := r.journal.open(window{Kind: f.Kind, Place: -1, Node: n.number})
		for {
			once(hard, n, f)
			if pause(ctx, every); ctx.Err() != nil {
				break
			}
		}
		r.journal.shut(w)
	}
}

// deposes is called before a fault that may make sentinels promote a replica, which loses
// what was not replicated. The result waits until the sentinels agree again.
func (r *round) deposes(hard context.Context) (agreed func()) {
	if r.servers.set == nil {
		return func() {}
	}
	w := r.journal.open(window{Kind: failover, Place: -1, Node: -1})
	return func() {
		_ = retry(hard, func(ctx context.Context) error {
			// Longer than sentinels take to depose a silent master.
			if now().sub(w.Begin) < 4*time.Second {
				return fmt.Errorf("chaos: a failover may be under way")
			}
			return r.servers.set.Agreed(ctx)
		})
		r.journal.shut(w)
	}
}
