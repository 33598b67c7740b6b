//go:build linux

package chaos

import (
	"bytes"
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

var networkFaults = []faultKind{
	{slow, 6, proxied, 500 * time.Millisecond, 8 * time.Second, onWires(func(f faultPlan) redistest.Fault {
		d := time.Duration(1+f.Variant%30) * time.Millisecond
		if f.Variant%5 == 0 {
			d *= 4
		}
		return redistest.Fault{Delay: d, Jitter: d/2 + 1}
	})},
	{lossThere, 2, proxied, 50 * time.Millisecond, 5 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Requests: redistest.Drop} })},
	{lossBack, 4, proxied, 50 * time.Millisecond, 5 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Replies: redistest.Drop} })},
	{blackhole, 2, proxied, 50 * time.Millisecond, 5 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Blackhole })},
	{late, 11, proxied, 500 * time.Millisecond, 4 * time.Second, func(ctx, _ context.Context, r *round, f faultPlan) {
		d, w := newDice(f.Seed, 0), r.journal.open(window{Kind: late, Place: f.Place, Node: r.wireNode(f)})
		for ctx.Err() == nil {
			for _, wire := range r.wires(f) {
				wire.proxy.Stall(func() bool { return d.chance(30) }, d.between(time.Second, 4*time.Second))
			}
			pause(ctx, 500*time.Millisecond)
		}
		time.Sleep(4 * time.Second) // until the last one was delivered
		r.journal.shut(w)
	}},
	{held, 1, proxied, time.Second, 4 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Requests: redistest.Hold} })},
	{lateMessages, 3, proxied, 20 * time.Millisecond, 2 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Replies: redistest.Hold} })},
	{stall, 2, proxied, time.Second, 4 * time.Second, onWires(func(faultPlan) redistest.Fault {
		return redistest.Fault{Requests: redistest.Hold, Replies: redistest.Hold}
	})},
	{hanging, 14, proxied, 2 * time.Second, 8 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		key := r.plan.Mapping.key(f.Name)
		onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Lose: renews(key)} })(ctx, hard, r, f)
	}},
	{sliced, 1, proxied, time.Second, 5 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Slice: true} })},
	{refusedDial, 1, proxied, 50 * time.Millisecond, 3 * time.Second, onWires(func(faultPlan) redistest.Fault { return redistest.Fault{Refuse: true} })},
	{duplicates, 2, proxied, time.Second, 5 * time.Second, onWires(func(f faultPlan) redistest.Fault {
		return redistest.Fault{Duplicate: min(f.Size, 4*time.Second)}
	})},
	{reset, 4, proxied, 0, 2 * time.Second, func(ctx, _ context.Context, r *round, f faultPlan) {
		w := r.journal.open(window{Kind: reset, Place: f.Place, Node: r.wireNode(f)})
		defer r.journal.shut(w)
		for ctx.Err() == nil {
			for _, wire := range r.wires(f) {
				wire.proxy.Reset()
			}
			pause(ctx, 100*time.Millisecond)
		}
	}},
}

// onWires returns the run function of a fault of the proxies.
func onWires(make func(faultPlan) redistest.Fault) func(ctx, hard context.Context, r *round, f faultPlan) {
	return func(ctx, _ context.Context, r *round, f faultPlan) {
		fault := make(f)
		w := r.journal.open(window{Kind: f.Kind, Place: f.Place, Node: r.wireNode(f), Size: max(fault.Delay, fault.Duplicate)})
		if fault.Lose != nil {
			w.Name = f.Name
		}
		wires := r.wires(f)
		for _, wire := range wires {
			wire.begin(&fault)
		}
		<-ctx.Done()
		for _, wire := range wires {
			wire.end(&fault)
			if fault.Requests == redistest.Drop || fault.Replies == redistest.Drop {
				wire.proxy.Reset() // mute connections stay mute: see [redistest.Drop]
			}
		}
		r.journal.shut(w)
	}
}

// renews returns a function that reports whether requests renew the mutex at a key. All
// other scripts for it have keys that derive from its own.
func renews(key string) func(requests []byte) bool {
	own, derived := []byte("\r\n"+key+"\r\n"), []byte("{"+key+"}\r\n")
	return func(requests []byte) bool { return bytes.Contains(requests, own) && !bytes.Contains(requests, derived) }
}

// wireNode is the node whose wires a fault affects, -1 for all of them: those of a single
// server, and of several servers for one fault in four.
func (r *round) wireNode(f faultPlan) int {
	if len(r.servers.nodes) > 1 && f.Variant%4 > 0 && f.Kind != hanging {
		return f.Node % len(r.servers.nodes)
	}
	return -1
}

func (r *round) wires(f faultPlan) (wires []*wire) {
	only := r.wireNode(f)
	for place, all := range r.servers.wires {
		for n, wire := range all {
			if (f.Place < 0 || place == f.Place) && (only < 0 || n == only) {
				wires = append(wires, wire)
			}
		}
	}
	return wires
}
