//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// window is the time in which a fault was active.
type window struct {
	Kind       string
	Place      int // of the processes that it affected; -1: all
	Process    int // the one process that it affected; 0: see Place
	Node       int // -1: all, or none
	Name       string
	Size       time.Duration
	Begin, End instant
}

func (w *window) String() string {
	var b strings.Builder
	fmt.Fprint(&b, w.Kind)
	if w.Process > 0 {
		fmt.Fprintf(&b, " process %d", w.Process)
	} else if w.Place >= 0 {
		fmt.Fprintf(&b, " place %d", w.Place)
	}
	if w.Node >= 0 {
		fmt.Fprintf(&b, " node %d", w.Node)
	}
	if w.Name != "" {
		fmt.Fprintf(&b, " %q", short(w.Name))
	}
	if w.Size != 0 {
		fmt.Fprintf(&b, " %v", w.Size)
	}
	return b.String()
}

// journal records the faults of a round, and when they were active.
type journal struct {
	mu  sync.Mutex
	all []*window
}

// open records the beginning of a fault.
func (j *journal) open(w window) *window {
	w.Begin, w.End = now(), forever
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, &w)
	return &w
}

// note records what is over.
func (j *journal) note(w window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, &w)
}

// shut records the end of a fault.
func (j *journal) shut(w *window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.End = now()
}

// between returns the faults that were active at some instant between two.
func (j *journal) between(from, to instant, wanted func(*window) bool) (found []*window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.all {
		if w.Begin <= to && w.End >= from && (wanted == nil || wanted(w)) {
			found = append(found, w)
		}
	}
	return found
}

func ofKind(kinds ...string) func(*window) bool {
	return func(w *window) bool { return slices.Contains(kinds, w.Kind) }
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

func short(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}
