package bucket

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"
	"weak"
)

func TestSlabFillsItsSizeClass(t *testing.T) {
	size := unsafe.Sizeof([slabNodes]Node{})
	if unsafe.Sizeof(uintptr(0)) == 8 && (size > 8192-8 || size+unsafe.Sizeof(Node{}) <= 8192-8) {
		t.Errorf("a slab has %d bytes; want as many nodes of %d as go into 8192 less the allocator's header",
			size, unsafe.Sizeof(Node{}))
	}
}

// checkSlabs checks the invariants of a set of slabs.
func checkSlabs(t *testing.T, ss *slabs, used int) {
	t.Helper()
	open := map[*slab]bool{}
	var last *slab
	empty := 0
	for s := ss.open; s != nil; s = s.next {
		if s.prev != last || open[s] {
			t.Fatal("the list of open slabs is broken")
		}
		open[s], last = true, s
		if s.used == 0 {
			empty++
		}
	}
	if ss.openTail != last || ss.empty != empty || empty > spareSlabs+1 {
		t.Fatalf("%d slabs are empty, counted %d, and want %d at the most", empty, ss.empty, spareSlabs+1)
	}
	vacant := 0
	for number, s := range ss.table {
		if s == nil {
			vacant++
			continue
		}
		free := 0
		for n := s.free; n != nil; n = n.next {
			free++
		}
		if free+slabNodes-s.fresh+s.used != slabNodes || s.number != uint32(number) {
			t.Fatalf("slab %d: %d free, %d used, %d fresh", number, free, s.used, slabNodes-s.fresh)
		}
		if open[s] != (s.used < slabNodes) {
			t.Fatalf("slab %d has %d used nodes, and open is %v", number, s.used, open[s])
		}
		used -= s.used
	}
	if used != 0 || vacant != len(ss.vacant) {
		t.Fatalf("%d nodes too few, %d of %d vacant numbers known", used, len(ss.vacant), vacant)
	}
}

func TestSlabsAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ss := slabs{owner: pooled}
	var taken []*Node
	out, lives := map[*Node]bool{}, map[*Node]uint64{}
	for step := range 60_000 {
		// Waves of growing and shrinking.
		if grow := step/6000%2 == 0; r.IntN(10) < 7 == grow || len(taken) == 0 {
			n := ss.take()
			if out[n] || lives[n] == n.Life() && n.Life() > 0 {
				t.Fatal("a node was given out twice, or in a life that it had")
			}
			if n.Owner() != pooled || n.next != nil || n.prev != nil || n.Task() != nil {
				t.Fatal("a node is not as good as new")
			}
			n.SetTask(func() {})
			out[n] = true
			taken = append(taken, n)
		} else {
			i := r.IntN(len(taken))
			n := taken[i]
			taken[i] = taken[len(taken)-1]
			taken = taken[:len(taken)-1]
			delete(out, n)
			lives[n] = n.Life()
			ss.give(n)
			if n.Task() != nil {
				t.Fatal("a node that was given back still has its task")
			}
		}
		if step%97 == 0 {
			checkSlabs(t, &ss, len(taken))
		}
	}
	for _, n := range taken {
		ss.give(n)
	}
	checkSlabs(t, &ss, 0)
}

// Memory of a burst goes back to the collector, except a few spare slabs.
func TestSlabsGoBackToTheCollector(t *testing.T) {
	ss := slabs{owner: pooled}
	var taken []*Node
	var arrays []weak.Pointer[[slabNodes]Node]
	for range 100 * slabNodes {
		taken = append(taken, ss.take())
	}
	for _, s := range ss.table {
		arrays = append(arrays, weak.Make(s.nodes))
	}
	for _, n := range taken {
		ss.give(n)
	}
	clear(taken)
	checkSlabs(t, &ss, 0)
	runtime.GC()
	runtime.GC()
	kept := 0
	for _, a := range arrays {
		if a.Value() != nil {
			kept++
		}
	}
	if kept > spareSlabs {
		t.Errorf("%d of 100 slabs are kept, want %d", kept, spareSlabs)
	}
	runtime.KeepAlive(&ss)
	// The numbers of the dropped ones are used again.
	for range 100 * slabNodes {
		ss.take()
	}
	if len(ss.table) != 100 {
		t.Errorf("%d slab numbers in use for 100 slabs", len(ss.table))
	}
}
