package bucket

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// deaf is an engine that does nothing.
type deaf struct{}

func (deaf) After(time.Duration) timeout.Tick                { return 0 }
func (deaf) At(time.Time) timeout.Tick                       { return 0 }
func (deaf) Time(timeout.Tick) time.Time                     { return time.Time{} }
func (deaf) Cancelled(*timeout.Entry, uint64)                {}
func (deaf) Rearm(*timeout.Entry, uint64, timeout.Tick) bool { return false }

var (
	pooled  = &timeout.Owner{Engine: deaf{}, Pooled: true}
	adopted = &timeout.Owner{Engine: deaf{}}
)

func newNode(tick timeout.Tick) *Node {
	n := new(Node)
	n.Bind(adopted)
	n.Start(tick)
	return n
}

// checkChain checks a chain's links against each other, both ways.
func checkChain(t *testing.T, c *chain, want []*Node) {
	t.Helper()
	var last *Node
	var got []*Node
	for n := c.head; n != nil; n = n.next {
		if n.prev != last {
			t.Fatalf("node %d leads back to another than the one before it", len(got))
		}
		got, last = append(got, n), n
		if len(got) > len(want) {
			break
		}
	}
	if c.tail != last || !slices.Equal(got, want) {
		t.Fatalf("%d nodes in the chain, want %d, or another order or tail", len(got), len(want))
	}
}

func TestChainKeepsOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var c chain
	var want []*Node
	for range 5000 {
		switch {
		case r.IntN(2) == 0 || len(want) == 0:
			n := new(Node)
			c.add(n)
			want = append(want, n)
		case r.IntN(3) == 0:
			if n := c.pop(); n != want[0] {
				t.Fatal("pop did not return the first node")
			}
			want = want[1:]
		default:
			i := r.IntN(len(want))
			c.remove(want[i])
			if want[i].next != nil || want[i].prev != nil {
				t.Fatal("a removed node keeps its links, and others alive")
			}
			want = slices.Delete(want, i, i+1)
		}
		checkChain(t, &c, want)
	}
	for range want {
		c.pop()
	}
	if c.pop() != nil {
		t.Error("an empty chain has a node")
	}
}

func TestZeroBucketIsEmpty(t *testing.T) {
	var b Bucket
	if !b.Empty() || b.Pop() != nil {
		t.Error("want empty")
	}
	n := newNode(5)
	b.Add(n, 5)
	if b.Empty() || b.Earliest() != 5 || b.Pop() != n || !b.Empty() {
		t.Error("want one node, with tick 5")
	}
}

func TestNodesHaveTheNumberOfTheirBucket(t *testing.T) {
	var b Bucket
	b.Number(7)
	n := newNode(5)
	b.Add(n, 5)
	if n.List() != 7 {
		t.Errorf("list %d, want 7", n.List())
	}
	b.Remove(n)
	if n.List() != 0 {
		t.Errorf("list %d after Remove, want 0", n.List())
	}
	b.Add(n, 5)
	if b.Pop(); n.List() != 0 {
		t.Errorf("list %d after Pop, want 0", n.List())
	}
}

func TestSweep(t *testing.T) {
	const mask = 7
	for _, c := range []struct {
		name  string
		tick  timeout.Tick // in bucket 3, at tick 19
		ended bool
		goes  string
	}{
		{"due now", 19, false, "due"},
		{"due a revolution ago", 11, false, "due"},
		{"due, but for another bucket", 18, false, "due"},
		{"a round to go", 27, false, "stays"},
		{"many rounds to go", 19 + 8*1000, false, "stays"},
		{"moved to a later tick", 20, false, "strays"},
		{"moved rounds away", 21 + 8*5, false, "strays"},
		{"cancelled", 19, true, "stays"},
	} {
		var b, due, strays Bucket
		b.Number(4)
		due.Number(9)
		first, n, last := newNode(27), newNode(c.tick), newNode(35)
		for _, node := range []*Node{first, n, last} {
			tick, _ := node.PendingTick()
			b.Add(node, tick)
		}
		if c.ended {
			n.Withdraw(n.Life())
		}
		b.Sweep(19, mask, &due, &strays)
		want := []*Node{first, last}
		got := "stays"
		switch {
		case !due.Empty():
			got = "due"
			if n.List() != 9 {
				t.Errorf("%s: list %d, want 9", c.name, n.List())
			}
		case !strays.Empty():
			got = "strays"
		default:
			want = []*Node{first, n, last}
		}
		if got != c.goes {
			t.Errorf("%s: %s, want %s", c.name, got, c.goes)
		}
		checkChain(t, &b.chain, want)
		if b.Earliest() != 27 {
			t.Errorf("%s: earliest %d, want 27", c.name, b.Earliest())
		}
	}
}

func TestAllStopsAtABreak(t *testing.T) {
	var b Bucket
	for range 5 {
		b.Add(newNode(1), 1)
	}
	seen := 0
	for range b.All {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("visited %d, want 3", seen)
	}
}
