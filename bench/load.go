package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// A Load is other work of the process while timers are measured.
type Load uint8

const (
	// Idle is no load: the process only waits for its timers.
	Idle Load = iota
	// Busy keeps every core busy with a goroutine that computes without a pause.
	Busy
	// GC keeps the garbage collector at work: a goroutine allocates without a
	// pause beside a live heap of a million small objects.
	GC
)

var loadNames = [...]string{Idle: "idle", Busy: "busy", GC: "gc"}

// String returns the name that [ParseLoad] reads.
func (l Load) String() string {
	if int(l) < len(loadNames) {
		return loadNames[l]
	}
	return "invalid"
}

// ParseLoad reads the name of a load.
func ParseLoad(name string) (Load, error) {
	for l, n := range loadNames {
		if n == name {
			return Load(l), nil
		}
	}
	return 0, fmt.Errorf("load must be idle, busy or gc, got %q", name)
}

// Start begins the load. stop ends it and waits for its goroutines.
func (l Load) Start() (stop func()) {
	var done atomic.Bool
	var workers sync.WaitGroup
	switch l {
	case Busy:
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() { compute(&done) })
		}
	case GC:
		workers.Go(func() { allocate(&done, 1<<20) })
	}
	return func() {
		done.Store(true)
		workers.Wait()
	}
}

// compute is a loop that yields only when the scheduler preempts it, as busy loops of real
// programs do.
func compute(done *atomic.Bool) {
	for x := uint64(1); !done.Load(); {
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
}

// A cell is a small object with a pointer in it, for the collector to follow.
type cell struct {
	self *cell
	_    [5]uint64
}

// allocate replaces the cells of a live heap one after the other.
func allocate(done *atomic.Bool, live int) {
	heap := make([]*cell, live)
	for i := 0; !done.Load(); i = (i + 1) % live {
		c := new(cell)
		c.self = c
		heap[i] = c
	}
}
