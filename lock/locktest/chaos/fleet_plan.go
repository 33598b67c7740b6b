package chaos

import (
	"cmp"
	"slices"
	"time"
)

// fleetTempos are by how much slower drivers are than those of real processes, and how long a
// round then lasts. A request costs as much whatever the tempo is.
var fleetTempos = []struct {
	slower int
	active time.Duration
}{{30, 15 * time.Second}, {100, 40 * time.Second}, {300, 90 * time.Second}, {1000, 4 * time.Minute}, {10_000, 20 * time.Minute}}

// drawFleet draws a round of the fleet: it depends on the seed and the round's number alone.
func drawFleet(seed uint64, round int, active time.Duration) *plan {
	d := newDice(seed, uint64(round))
	p := &plan{Seed: seed, Round: round, Site: single}
	tempo := pick(d, fleetTempos)
	if d.chance(15) {
		p.Site, tempo = five, pick(d, fleetTempos[:3]) // each request is five
	}
	p.Active = cmp.Or(active, tempo.active)
	if d.chance(30) {
		p.Skew = (d.Float64() - 0.5) * 0.018
	}
	if d.chance(40) {
		p.Mapping = mapping{Prefix: pick(d, []string{"shop:", "Ж/", "a"}), Suffix: pick(d, []string{"", "", ":lock"})}
	}
	kinds := []kind{mutexKind, mutexKind, mutexKind, fairKind, fairKind, writeKind, writeKind, permitsKind, semaphoreKind, latchKind, electionKind}
	if p.Site == five {
		kinds = []kind{mutexKind, mutexKind, electionKind}
	}
	names := 3 + d.IntN(4)
	if p.Site == five {
		names = 2
	}
	for i := range names {
		p.Names = append(p.Names, namePlan{Name: pick(d, []string{"orders", "{orders}:", "job:"}) + string(rune('a'+i)), Kind: pick(d, kinds), Count: int64(1 + d.IntN(3))})
	}
	p.Names = append(p.Names, namePlan{Name: "lonely", Kind: pick(d, []kind{mutexKind, fairKind}), Role: lonely})
	if p.Site == five {
		p.Names[len(p.Names)-1].Kind = mutexKind
	}
	p.drawFleetWorkers(d, tempo.slower)
	p.drawFleetFaults(d)
	return p
}

// drawFleetWorkers draws the processes and their drivers. The tempo of a round is such that
// leases of all lengths expire, are renewed and are waited for in it.
func (p *plan) drawFleetWorkers(d dice, tempo int) {
	ttls := []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 30 * time.Second, 30 * time.Second, time.Minute}
	if p.Site == five {
		ttls = ttls[3:]
	}
	var queue *queuePlan
	if p.Site == single && d.chance(60) {
		queue = &queuePlan{Name: pick(d, []string{"mails", "{mails}:9", "m"}), TTL: pick(d, ttls[1:6]), Concurrency: 1 + d.IntN(4), Putters: 1, Every: d.span(50*time.Millisecond, 200*time.Millisecond)}
	}
	deferring, passing, crowded := d.chance(50), d.chance(30), d.chance(30)
	for range places {
		w := workerPlan{Seed: d.Uint64(), Poll: d.between(time.Second, 5*time.Second), Request: pick(d, []time.Duration{300 * time.Millisecond, time.Second}), Queue: queue, Mapping: p.Mapping, Tempo: tempo}
		if d.chance(25) {
			w.Tick = 50 * time.Millisecond
		}
		if d.chance(30) {
			w.Pool, w.Room = 1+d.IntN(2), d.IntN(4)
		}
		if d.chance(30) {
			w.Running = 1 + d.IntN(3) // functions wait for each other's end
		}
		for i, n := range p.Names {
			users := 1 + d.IntN(2)
			if n.Role == lonely || p.Site == five {
				users = 1
			} else if crowded && i == 0 && slices.Contains([]kind{mutexKind, fairKind, electionKind}, n.Kind) { // whose grants have one order alone
				users += 6
			}
			for range users {
				driver := driverPlan{Seed: d.Uint64(), Kind: n.Kind, Name: n.Name, Count: n.Count, Role: n.Role, TTL: pick(d, ttls), Calm: true}
				if w.Tick > 0 {
					driver.TTL = max(driver.TTL, 4*w.Tick)
				}
				driver.Fixed, driver.Defer, driver.First = d.chance(10), deferring && d.chance(50), d.chance(40)
				if n.Kind == mutexKind && passing && d.chance(50) && p.Site == single {
					driver.Passes, driver.TTL, driver.Fixed = 5, 2*time.Second, false
				}
				if n.Role == lonely {
					driver.TTL = longTTL
				}
				w.Drivers = append(w.Drivers, driver)
			}
		}
		p.Workers = append(p.Workers, w)
	}
}

// fleetFaults are the faults of the fleet with their chances.
var fleetFaults = []struct {
	kind        string
	weight      int
	least, most time.Duration
}{
	{slow, 3, 5 * time.Second, 2 * time.Minute},
	{lossThere, 3, 100 * time.Millisecond, time.Minute},
	{lossBack, 4, 100 * time.Millisecond, time.Minute},
	{blackhole, 3, 100 * time.Millisecond, 2 * time.Minute},
	{late, 6, 5 * time.Second, 2 * time.Minute},
	{stall, 3, 100 * time.Millisecond, time.Minute},
	{lateMessages, 3, 100 * time.Millisecond, 20 * time.Second},
	{refusedDial, 1, time.Second, time.Minute},
	{reset, 4, time.Second, time.Second},
	{stopped, 4, 100 * time.Millisecond, 2 * time.Minute},
	{killed, 4, time.Second, 30 * time.Second},
	{frozen, 3, 100 * time.Millisecond, time.Minute},
	{restarted, 2, 0, 0},
	{dataLost, 1, 0, 0},
	{oldData, 1, 0, 0},
	{stepped, 1, 0, 0},
	{flushed, 1, 0, 0},
}

// drawFleetFaults draws up to four kinds of fault, and some of each.
func (p *plan) drawFleetFaults(d dice) {
	total := 0
	for _, k := range fleetFaults {
		total += k.weight
	}
	drawn := map[string]bool{}
	for range 1 + d.IntN(4) {
		roll, i := d.IntN(total), 0
		for ; roll >= fleetFaults[i].weight; i++ {
			roll -= fleetFaults[i].weight
		}
		k := fleetFaults[i]
		if drawn[k.kind] || p.Site == five && slices.Contains([]string{dataLost, oldData, stepped}, k.kind) {
			continue
		}
		drawn[k.kind] = true
		for range 1 + d.IntN(4) {
			f := faultPlan{Kind: k.kind, At: d.between(p.Active/50, p.Active*9/10), For: d.span(k.least+1, k.most+1), Place: d.IntN(places), Node: d.IntN(quorumNodes),
				Size: d.span(time.Millisecond, 40*time.Second), Variant: d.IntN(1000), Seed: d.Uint64()}
			if d.chance(25) {
				f.Place = -1
			}
			p.Faults = append(p.Faults, f)
		}
	}
	slices.SortFunc(p.Faults, func(a, b faultPlan) int { return int(a.At - b.At) })
}
