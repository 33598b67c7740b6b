//go:build linux

package chaos

import (
	"math/rand/v2"
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

	Site   site
	Keeps  bool    // a killed server recovers its data
	Skew   float64 // of the server's clock, as a part of its rate
	Active time.Duration

	Names   []namePlan
	Workers []workerPlan // one for each place; a replacement has the plan of its predecessor
	Faults  []faultPlan
}

// namePlan is one name and its users.
type namePlan struct {
	Name  string
	Kind  kind
	Count int64 // of permits
	// Lonely marks a name that one driver of each process uses, with a long lease.
	Lonely bool
	// Victim marks a name at whose keys garbage is written.
	Victim bool
}

// workerPlan is the plan of one process.
type workerPlan struct {
	Seed    uint64
	URLs    []string // five of a quorum, one otherwise
	Tick    time.Duration
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
	places      = 3 // worker processes at a time
	quorumNodes = 5
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
	p.Site = pick(d, []site{single, single, single, single, single, single, single, single, five, five, cluster, sentinel})
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
	p.Names = drawNames(d, p.Site)
	p.drawWorkers(d)
	p.drawFaults(d, long, only.faults)
	return p
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
	for range places {
		w := workerPlan{Seed: d.Uint64(), Poll: d.between(time.Second, 5*time.Second), Request: pick(d, []time.Duration{300 * time.Millisecond, time.Second}), Queue: queue}
		if d.chance(25) {
			w.Tick = 50 * time.Millisecond
		}
		for _, n := range p.Names {
			users := 1 + d.IntN(3)
			if rush {
				users += 5
			}
			if n.Lonely {
				users = 1
			}
			for range users {
				driver := driverPlan{Seed: d.Uint64(), Kind: n.Kind, Name: n.Name, Count: n.Count, TTL: pick(d, ttls), Calm: !rush && d.chance(80)}
				if w.Tick > 0 {
					driver.TTL = max(driver.TTL, 4*w.Tick)
				}
				if p.Site == five {
					driver.TTL = max(driver.TTL, 2*time.Second)
				}
				driver.Fixed = d.chance(10)
				if n.Lonely {
					driver.TTL, driver.Calm = 30*time.Second, true
				}
				driver.Defer = deferring && d.chance(40)
				driver.First = d.chance(30)
				if n.Kind == mutexKind && d.chance(25) && p.Site != five {
					driver.Passes, driver.TTL, driver.Fixed = pick(d, []int{5, 1_000_000}), 2*time.Second, false
				}
				w.Drivers = append(w.Drivers, driver)
			}
		}
		p.Workers = append(p.Workers, w)
	}
}
