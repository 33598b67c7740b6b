//go:build linux

package chaos

import (
	"context"
	"slices"
	"sync"
	"time"
)

// faultKind is a kind of fault.
type faultKind struct {
	name        string
	weight      int
	sites       []site
	least, most time.Duration // how long one lasts
	// run begins the fault, records that, waits until ctx ends, and ends it. hard ends
	// with the round.
	run func(ctx context.Context, hard context.Context, r *round, f faultPlan)
}

var (
	proxied    = []site{single, five, cluster}
	everywhere = []site{single, five, cluster, sentinel}
	alone      = []site{single}
	parted     = []site{cluster} // in parts that can fail alone
)

// faultKinds are all kinds. Those that broke promises before are drawn more often.
func faultKinds() []faultKind {
	return slices.Concat(networkFaults, processFaults, serverFaults, refusalFaults, dataFaults)
}

// drawFaults draws a few kinds of fault, and some of each. A kind that is not drawn
// excuses nothing in the round.
func (p *plan) drawFaults(d dice, long bool, only []string) {
	var kinds []faultKind
	total := 0
	for _, k := range faultKinds() {
		if slices.Contains(k.sites, p.Site) && (len(only) == 0 || slices.Contains(only, k.name)) {
			kinds = append(kinds, k)
			total += k.weight
		}
	}
	if total == 0 {
		return
	}
	victims := []string{}
	for _, n := range p.Names {
		if n.Victim {
			victims = append(victims, n.Name)
		}
	}
	drawn := map[string]bool{}
	for range 1 + d.IntN(4) {
		roll, i := d.IntN(total), 0
		for roll >= kinds[i].weight {
			roll -= kinds[i].weight
			i++
		}
		k := kinds[i]
		if drawn[k.name] {
			continue
		}
		drawn[k.name] = true
		times := 1 + d.IntN(6)
		if k.name == mute {
			times = 1
		}
		for range times {
			f := faultPlan{Kind: k.name, At: d.between(p.Active/50, p.Active*9/10), For: d.span(k.least, k.most),
				Place: d.IntN(places), Node: d.IntN(quorumNodes), Size: d.span(time.Millisecond, 40*time.Second), Variant: d.IntN(1000), Seed: d.Uint64()}
			if d.chance(30) {
				f.Place = -1
			}
			f.Name = pick(d, p.Names).Name
			switch k.name {
			case hanging:
				f.Name = company + keptName(max(f.Place, 0), d.IntN(keptNames))
			case mute: // for the whole round, but for its beginning
				f.At, f.For = d.between(p.Active/20, p.Active/10), p.Active
			}
			if k.name == garbage && len(victims) > 0 {
				f.Name = pick(d, victims)
			}
			if long && d.chance(35) && k.most > time.Second {
				f.At, f.For = 500*time.Millisecond, 17*time.Second
			}
			p.Faults = append(p.Faults, f)
		}
	}
	slices.SortFunc(p.Faults, func(a, b faultPlan) int { return int(a.At - b.At) })
}

// inflict runs the faults of the plan until ctx ends, and returns when the last has
// ended.
func (r *round) inflict(ctx, hard context.Context) {
	byName := map[string]faultKind{}
	for _, k := range faultKinds() {
		byName[k.name] = k
	}
	var running sync.WaitGroup
	for _, f := range r.plan.Faults {
		running.Go(func() {
			select {
			case <-time.After(f.At):
			case <-ctx.Done():
				return
			}
			lasting, cancel := context.WithTimeout(ctx, f.For)
			defer cancel()
			byName[f.Kind].run(lasting, hard, r, f)
		})
	}
	running.Wait()
}

// target returns the node that a fault affects.
func (r *round) target(f faultPlan) *node { return r.servers.nodes[f.Node%len(r.servers.nodes)] }
