//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"time"
)

// limits restrict sites and faults. Their zero value allows all.
type limits struct {
	site   site
	faults []string
	active time.Duration
}

// draw draws round number round of a seed.
func draw(seed uint64, round int, only limits) *plan {
	d := newDice(seed, uint64(round))
	p := &plan{Seed: seed, Round: round}
	p.Site = pick(d, []site{single, single, single, single, single, single, single, single, five, five, cluster, cluster, cluster, sentinel})
	if only.site != "" {
		p.Site = only.site
	}
	p.Keeps = p.Site == five || p.Site == cluster || d.chance(50)
	if d.chance(30) {
		p.Skew = (d.Float64() - 0.5) * 0.018
	}
	p.Active = d.between(7*time.Second, 11*time.Second)
	long := d.chance(15)
	if long {
		p.Active = d.between(22*time.Second, 26*time.Second)
	}
	if only.active > 0 {
		p.Active, long = only.active, false
	}
	if p.Site == cluster && d.chance(60) {
		for range clusterNodes {
			p.Ahead = append(p.Ahead, time.Duration(d.IntN(7))*500*time.Millisecond)
		}
	}
	if d.chance(40) {
		p.Mapping = mapping{Prefix: pick(d, []string{"shop:", "Ж/", "a"}), Suffix: pick(d, []string{"", "", ":lock"})}
	}
	p.Names = drawNames(d, p.Site)
	p.drawFaults(d, long, only.faults)
	p.addCompany(d)
	p.drawWorkers(d)
	return p
}

// addCompany adds the names that show what a fault of one part does to the others: many
// beside a mute master, and many beside a lease whose renewals hang.
func (p *plan) addCompany(d dice) {
	add := func(name string, r role, place int) {
		p.Names = append(p.Names, namePlan{Name: company + name, Kind: mutexKind, Role: r, Place: place})
	}
	if p.has(mute) || d.chance(5) {
		for i := range 4 {
			add(fmt.Sprintf("busy %d", i), busy, 0)
		}
		for i := range 60 + d.IntN(140) {
			add(fmt.Sprintf("crowd %d", i), crowd, 0)
		}
	}
	if p.has(hanging) || p.Site != five && d.chance(10) {
		for place := range places {
			for i := range keptNames {
				add(keptName(place, i), kept, place)
			}
		}
	}
}

// company is how the names of addCompany begin.
const company = "many/"

// keptNames is how many leases a process keeps.
const keptNames = 100

func keptName(place, i int) string { return fmt.Sprintf("kept %d.%d", place, i) }

func (p *plan) has(kind string) bool {
	return slices.ContainsFunc(p.Faults, func(f faultPlan) bool { return f.Kind == kind })
}

// drawWorkers makes every process use every name, with leases of all lengths.
func (p *plan) drawWorkers(d dice) {
	ttls := []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 30 * time.Second, 30 * time.Second}
	queue := &queuePlan{Name: pick(d, []string{"mails", "{mails}:9", "m"}), TTL: pick(d, []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second, 4 * time.Second}),
		Concurrency: 4, Every: d.span(20*time.Millisecond, 100*time.Millisecond)}
	if p.Site == five {
		queue = nil
	}
	if queue != nil {
		queue.Putters = 1 + d.IntN(4)
	}
	deferring, rush := d.chance(40), d.chance(50)
	for place := range places {
		w := workerPlan{Seed: d.Uint64(), Poll: d.between(time.Second, 5*time.Second), Request: pick(d, []time.Duration{300 * time.Millisecond, time.Second}), Queue: queue, Mapping: p.Mapping}
		if d.chance(25) {
			w.Tick = 50 * time.Millisecond
		}
		if d.chance(30) {
			w.Pool, w.Room = 1+d.IntN(2), d.IntN(4)
		}
		if d.chance(30) {
			w.Running = 8
		}
		for _, n := range p.Names {
			users := 1 + d.IntN(3)
			if rush {
				users += 5
			}
			switch {
			case n.Role == kept && n.Place != place:
				users = 0
			case n.Role == busy:
				users = 2
			case n.Role != mixed:
				users = 1
			}
			for range users {
				driver := driverPlan{Seed: d.Uint64(), Kind: n.Kind, Name: n.Name, Count: n.Count, Role: n.Role, TTL: pick(d, ttls), Calm: !rush && d.chance(80)}
				if w.Tick > 0 {
					driver.TTL = max(driver.TTL, 4*w.Tick)
				}
				if p.Site == five {
					driver.TTL = max(driver.TTL, 2*time.Second)
				}
				driver.Fixed = d.chance(10)
				driver.Defer = deferring && d.chance(40)
				driver.First = d.chance(30)
				if n.Kind == mutexKind && d.chance(25) && p.Site != five {
					driver.Passes, driver.TTL, driver.Fixed = pick(d, []int{5, 1_000_000}), 2*time.Second, false
				}
				switch n.Role {
				case lonely:
					driver.TTL, driver.Calm = longTTL, true
				case busy, crowd:
					driver.TTL, driver.Passes, driver.Fixed, driver.Calm = longTTL, 0, false, n.Role == crowd
				case kept:
					driver.TTL, driver.Passes, driver.Fixed, driver.Defer, driver.Calm = 2*time.Second, 0, false, false, false
				}
				w.Drivers = append(w.Drivers, driver)
			}
		}
		p.Workers = append(p.Workers, w)
	}
}

// drawNames draws the names of a round: families that share a prefix and differ in
// braces, and odd ones.
func drawNames(d dice, at site) []namePlan {
	kinds := []kind{mutexKind, mutexKind, fairKind, writeKind, permitsKind, semaphoreKind, latchKind}
	if at == five {
		kinds = []kind{mutexKind}
	}
	seen := map[string]bool{}
	var names []namePlan
	add := func(name string, k kind, victim bool) {
		if !seen[name] {
			seen[name] = true
			names = append(names, namePlan{Name: name, Kind: k, Count: int64(d.IntN(4)), Victim: victim})
		}
	}
	base := pick(d, []string{"orders", "a", "job:1"})
	twins := pick(d, []kind{mutexKind, mutexKind, permitsKind, fairKind})
	if at == five {
		twins = mutexKind
	}
	add(base, twins, false)
	if d.chance(50) {
		add("{"+base+"}", twins, false)
	}
	add(base+"2", pick(d, kinds), false)
	for _, k := range kinds {
		if d.chance(70) {
			add(base+":"+string(k), k, false)
		}
	}
	add(pick(d, oddNames), pick(d, kinds), false)
	for _, name := range []string{"lonely 1", "lonely 2"} {
		add(name, pick(d, kinds), false)
		names[len(names)-1].Role = lonely
	}
	if at != five {
		add(base+":permits", permitsKind, false)
		add("victim", pick(d, []kind{mutexKind, mutexKind, fairKind, writeKind, writeKind, permitsKind}), true)
	}
	return names
}
