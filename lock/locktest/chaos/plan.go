//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is the kind of object that a driver uses.
type kind string

const (
	mutexKind     kind = "mutex"
	fairKind      kind = "fair"
	readKind      kind = "read"
	writeKind     kind = "write"
	permitsKind   kind = "permits"
	semaphoreKind kind = "semaphore"
	latchKind     kind = "latch"
	queueKind     kind = "queue"
)

// site is the arrangement of a round's servers.
type site string

const (
	single   site = "single"
	sentinel site = "sentinel"
	cluster  site = "cluster"
	five     site = "quorum"
)

// plan holds everything that is drawn for a round.
type plan struct {
	Seed  uint64
	Round int

	Site    site
	Keeps   bool            // a killed server recovers its data
	Skew    float64         // of the server's clock, as a part of its rate
	Ahead   []time.Duration // by how much the clock of each node of a cluster is ahead
	Mapping mapping         // of names to keys
	Active  time.Duration

	Names   []namePlan
	Workers []workerPlan // one for each place; a replacement has the plan of its predecessor
	Faults  []faultPlan
}

// namePlan is one name and its users.
type namePlan struct {
	Name  string
	Kind  kind
	Count int64 // of permits
	Role  role
	Place int // of the only process that uses the name, if it is kept
	// Victim marks a name at whose keys garbage is written.
	Victim bool
}

// isOne reports whether the name is one of many.
func (n namePlan) isOne() bool { return n.Role == crowd || n.Role == kept }

// role is how the drivers of a name use it.
type role string

const (
	mixed  role = ""       // several drivers of each process, with TTLs of all lengths
	lonely role = "lonely" // one driver of each process, with a long TTL
	busy   role = "busy"   // two drivers of each process, without pauses, with a long TTL
	crowd  role = "crowd"  // one of many names: a driver of each process holds it briefly, with a long TTL
	kept   role = "kept"   // one of many names: a single driver holds it for long, with a short TTL
)

// longTTL is the TTL of the roles that have a long one. Waiters for such a lock are granted
// it for 7.5 s at first.
const longTTL = 30 * time.Second

// workerPlan is the plan of one process.
type workerPlan struct {
	Seed    uint64
	URLs    []string          // five of a quorum, one otherwise
	Wires   map[string]string // of a cluster: the address of the proxy by that of the node
	Nodes   []string          // the address of each node, or of the proxy before it
	Mapping mapping
	Tick    time.Duration
	Pool    int // workers of the wheel's executor, if it has one
	Room    int // tasks in front of them
	Running int // deferred functions at a time; 0: the default
	Request time.Duration
	Poll    time.Duration
	Drivers []driverPlan
	Queue   *queuePlan
}

// driverPlan is one goroutine that uses one name.
type driverPlan struct {
	Seed   uint64
	Kind   kind
	Name   string
	Count  int64
	Role   role
	TTL    time.Duration
	Fixed  bool
	Passes int
	Defer  bool // by Go rather than by Lock
	Calm   bool // pauses between its uses
	First  bool // writers first
}

// queuePlan is a delay queue and how a process uses it.
type queuePlan struct {
	Name        string
	TTL         time.Duration
	Concurrency int
	Putters     int
	Every       time.Duration // between two Puts of one of them
}

// faultPlan is one fault. The meaning of Place, Node, Name, Size and Variant depends on
// the kind.
type faultPlan struct {
	Kind    string
	At, For time.Duration
	Place   int // of a worker process
	Node    int
	Name    string
	Size    time.Duration
	Variant int
	Seed    uint64
}

// dice is a stream of draws.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

// chance is true p times in a hundred.
func (d dice) chance(p int) bool { return d.IntN(100) < p }

// between draws evenly.
func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)+1))
}

// span draws so that each order of magnitude is equally likely.
func (d dice) span(least, most time.Duration) time.Duration {
	for limit := least; ; limit *= 2 {
		if limit >= most || d.IntN(4) == 0 {
			return d.between(least, min(limit, most))
		}
	}
}

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

// The sizes of a round.
const (
	places       = 3 // worker processes at a time
	quorumNodes  = 5
	clusterNodes = 3
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
