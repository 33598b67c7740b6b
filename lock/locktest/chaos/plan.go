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
	electionKind  kind = "election"
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
	Tempo   int // by how much its drivers are slower; 0: not at all
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
