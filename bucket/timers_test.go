package bucket

import (
	"slices"
	"testing"
)

func entered(in *Inbox) []*Node {
	in.Detach()
	var all []*Node
	in.Entered(func(n *Node) { all = append(all, n) })
	return all
}

// Inboxes name an adopted node at most once until the worker takes it, after any
// operations.
func TestAdoptedNodeIsNamedOnce(t *testing.T) {
	in := newInbox()
	n := new(Node)
	n.Bind(adopted)
	if by, entered, ok := in.Enter(n, 10); by != 10 || !entered || !ok || in.Earliest() != 10 {
		t.Fatal("it has not entered")
	}
	if _, entered, ok := in.Enter(n, 10); entered || !ok {
		t.Error("it has entered twice")
	}
	for range 3 {
		n.Disarm()
		if n.Queue() {
			t.Error("cancelled among the arrivals, it is to be named")
		}
		if a := n.Arm(20); !a.Held() || a.Pending() || a.Queue() || a.Earlier() {
			t.Errorf("armed again for later: %+v", a)
		}
	}
	if a := n.Arm(5); a.Queue() || !a.Earlier() || !a.Pending() {
		t.Errorf("armed for earlier: %+v", a)
	}
	if got := entered(in); len(got) != 1 || got[0] != n {
		t.Fatalf("%d entered, want the one", len(got))
	}

	// With the worker: a later tick needs no notice, an earlier one and a cancel do.
	if a := n.Arm(30); a.Queue() || a.Earlier() {
		t.Errorf("moved to later: %+v", a)
	}
	n.Disarm()
	if !n.Queue() || n.Queue() {
		t.Error("a cancelled node is named once")
	}
	if by := in.Name(n); by != Never {
		t.Errorf("cancelled, it is due at %d", by)
	}
	if a := n.Arm(40); a.Queue() || a.Pending() {
		t.Errorf("armed again before the worker has looked: %+v", a)
	}
	if got := entered(in); len(got) != 1 || in.Earliest() != Never {
		t.Fatalf("%d named, want 1", len(got))
	}
	if n.Release() {
		t.Error("a pending node was let go")
	}
	n.Disarm()
	if !n.Release() || n.Queue() {
		t.Error("it is not let go")
	}
	if a := n.Arm(50); a.Held() {
		t.Error("a node that was let go is armed where nothing finds it")
	}
	if scheduled, _ := in.Counts(); scheduled != 1 {
		t.Errorf("%d entered by the numbers, want 1", scheduled)
	}
}

// A node that expires while an inbox names it stays held: when it is armed again, it is
// named already.
func TestExpiredNodeThatIsNamedStaysHeld(t *testing.T) {
	in := newInbox()
	n := new(Node)
	n.Bind(adopted)
	in.Enter(n, 10)
	entered(in)
	if a := n.Arm(5); !a.Queue() {
		t.Fatal("moved to earlier, it is not to be named")
	}
	in.Name(n)
	if won, holds := n.Claim(5); !won || !holds {
		t.Fatalf("due, it is claimed: %v; the worker keeps it: %v", won, holds)
	}
	if won, _ := n.Claim(5); won {
		t.Fatal("it is claimed twice")
	}
	if a := n.Arm(9); !a.Held() || a.Queue() {
		t.Errorf("armed by its task: %+v", a)
	}
	if !slices.Contains(slices.Collect(in.Arrivals), n) {
		t.Error("a wheel that stops does not find it")
	}
	if got := entered(in); len(got) != 1 || n.Release() {
		t.Error("it is not found where it was named")
	}
	if won, holds := n.Claim(9); !won || holds {
		t.Fatalf("due, it is claimed: %v; the worker keeps it: %v", won, holds)
	}
	if a := n.Arm(10); a.Held() {
		t.Error("expired, it is held")
	}
}

// A cancelled node that an inbox names stays held when it leaves its list: when it is armed
// again, it is named already. Races hit this once in forty runs.
func TestReleasedNodeThatIsNamedStaysHeld(t *testing.T) {
	in := newInbox()
	n := new(Node)
	n.Bind(adopted)
	in.Enter(n, 10)
	entered(in)
	n.Disarm()
	if !n.Queue() {
		t.Fatal("cancelled with the worker, it is not to be named")
	}
	in.Name(n)
	if n.Release() {
		t.Error("named, it is let go")
	}
	if a := n.Arm(20); !a.Held() || a.Queue() {
		t.Errorf("armed again before the worker has looked: %+v", a)
	}
	if !slices.Contains(slices.Collect(in.Arrivals), n) {
		t.Error("a wheel that stops does not find it")
	}
	if got := entered(in); len(got) != 1 || n.Release() {
		t.Error("it is not found where it was named")
	}
}
