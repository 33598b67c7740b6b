//go:build linux

package chaos

import (
	"context"
	"time"
)

var processFaults = []faultKind{
	{stopped, 4, everywhere, 20 * time.Millisecond, 4 * time.Second, func(ctx, _ context.Context, r *round, f faultPlan) {
		p := r.process(f.Place)
		w := r.journal.open(window{Kind: stopped, Place: -1, Process: p.number, Node: -1})
		p.stop()
		<-ctx.Done()
		p.resume()
		r.journal.shut(w)
	}},
	{killed, 2, everywhere, 100 * time.Millisecond, time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		p := r.process(f.Place)
		w := r.journal.open(window{Kind: killed, Place: -1, Process: p.number, Node: -1})
		p.kill()
		<-ctx.Done()
		if hard.Err() == nil {
			r.replace(p)
		}
		r.journal.shut(w)
	}},
}
