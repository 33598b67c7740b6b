package bucket

import (
	"testing"

	"github.com/leasewheel/leasewheel/timeout"
)

func newInbox() *Inbox {
	in := new(Inbox)
	in.Init(pooled)
	return in
}

// put schedules and returns the node, as the worker will see it.
func put(t *testing.T, in *Inbox, tick timeout.Tick) (*Node, timeout.Timeout) {
	t.Helper()
	h, _, ok := in.Put(tick, func() {})
	if !ok {
		t.Fatal("refused")
	}
	n := in.arrivals.tail
	if len(in.changed) > 0 && n == nil {
		n = in.changed[len(in.changed)-1]
	}
	return n, h
}

// take takes everything, as the worker does.
func take(in *Inbox) []*Node {
	var all []*Node
	if in.detached.head == nil {
		in.Detach()
	}
	var buf [4]*Node
	for k := in.Take(buf[:]); k > 0; k = in.Take(buf[:]) {
		all = append(all, buf[:k]...)
	}
	return all
}

func takeChanged(in *Inbox) []*Node {
	var all []*Node
	var buf [4]*Node
	for k := in.TakeChanged(buf[:]); k > 0; k = in.TakeChanged(buf[:]) {
		all = append(all, buf[:k]...)
	}
	return all
}

func cancel(in *Inbox, n *Node) (reclaim bool) {
	life := n.Life()
	if _, ok := n.Withdraw(life); !ok {
		panic("not pending")
	}
	return in.Cancelled(n, life)
}

func TestInboxKeepsTheOrderOfArrival(t *testing.T) {
	in := newInbox()
	var want []*Node
	for i := range 10 {
		n, _ := put(t, in, timeout.Tick(100-i))
		want = append(want, n)
	}
	if in.Earliest() != 91 {
		t.Errorf("earliest %d, want 91", in.Earliest())
	}
	got := take(in)
	if len(got) != len(want) {
		t.Fatalf("%d taken, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("node %d is not the one that arrived then", i)
		}
	}
	if in.Earliest() != Never {
		t.Errorf("earliest %d in an empty inbox", in.Earliest())
	}
}

func TestPutReturnsWhenTheWorkerIsNeeded(t *testing.T) {
	in := newInbox()
	for i := range highWater - 1 {
		if _, by, _ := in.Put(timeout.Tick(1000+i), func() {}); by != timeout.Tick(1000+i) {
			t.Fatalf("needed by %d, want %d", by, 1000+i)
		}
	}
	if _, by, _ := in.Put(5000, func() {}); by != 0 || in.Earliest() != 0 {
		t.Errorf("a full inbox needs the worker by %d, want at once", by)
	}
	if got := len(take(in)); got != highWater {
		t.Errorf("%d taken, want %d", got, highWater)
	}
}

func TestCancelAmongTheArrivalsNeedsNoWorker(t *testing.T) {
	in := newInbox()
	n, h := put(t, in, 10)
	if cancel(in, n) {
		t.Error("the worker was asked to reclaim what it never had")
	}
	if len(take(in)) != 0 || len(takeChanged(in)) != 0 {
		t.Error("a cancelled arrival reached the worker")
	}
	if h.State() != timeout.Cancelled || n.Task() != nil {
		t.Error("a cancelled arrival keeps its life or its task")
	}
	if again, _ := put(t, in, 11); again != n {
		t.Error("its node does not serve the next one")
	}
}

func TestCancelWithTheWorkerIsQueuedOnce(t *testing.T) {
	in := newInbox()
	n, _ := put(t, in, 10)
	take(in)
	if !cancel(in, n) {
		t.Error("the worker was not asked to reclaim")
	}
	if n.Task() != nil {
		t.Error("the task is kept until the worker comes round")
	}
	got := takeChanged(in)
	if len(got) != 1 || got[0] != n {
		t.Fatalf("%d nodes are queued, want the one", len(got))
	}
	if armed := in.Drop(got); len(armed) != 0 {
		t.Error("a cancelled node is taken for an armed one")
	}
	checkSlabs(t, &in.free, 0)
}

// While the worker takes the detached nodes, they are no longer among the arrivals: a
// cancel must not unlink them there.
func TestCancelOfWhatIsBeingTakenIn(t *testing.T) {
	in := newInbox()
	var nodes []*Node
	for range 8 {
		n, _ := put(t, in, 10)
		nodes = append(nodes, n)
	}
	var buf [2]*Node
	in.Detach()
	in.Take(buf[:]) // six are detached, not taken
	late, _ := put(t, in, 20)
	if !cancel(in, nodes[5]) || !cancel(in, nodes[0]) {
		t.Error("what is with the worker is the worker's to reclaim")
	}
	if cancel(in, late) {
		t.Error("what has arrived since is not")
	}
	if rest := take(in); len(rest) != 6 || rest[3] != nodes[5] {
		t.Fatalf("%d taken, want the six that were detached", len(rest))
	}
	if changed := takeChanged(in); len(changed) != 2 {
		t.Errorf("%d queued, want 2", len(changed))
	}
}

func TestMoveToAnEarlierTickIsQueued(t *testing.T) {
	in := newInbox()
	n, h := put(t, in, 100)
	_ = h
	if by, ok := in.Move(n, n.Life(), 50); !ok || by != 50 || in.Earliest() != 50 {
		t.Error("an arrival moves where it is")
	}
	take(in)
	if len(in.changed) != 0 {
		t.Error("an arrival was queued")
	}
	if by, ok := in.Move(n, n.Life(), 70); !ok || by != Never {
		t.Error("a later tick needs nobody")
	}
	if by, ok := in.Move(n, n.Life(), 30); !ok || by != 30 || in.Earliest() != 30 {
		t.Error("an earlier tick needs the worker by then")
	}
	in.Move(n, n.Life(), 20)
	if got := takeChanged(in); len(got) != 1 || got[0] != n {
		t.Errorf("queued %d times, want once", len(got))
	}
	if _, ok := in.Move(n, n.Life()+1, 10); ok {
		t.Error("another life was moved")
	}
}

func TestCancelledNodeServesTheNextWhereItIs(t *testing.T) {
	in := newInbox()
	n, old := put(t, in, 10)
	take(in)
	cancel(in, n)
	h, by, _ := in.Put(30, func() {})
	if h != n.Timeout() || by != 30 || in.Earliest() > 30 || in.arrivals.head != nil {
		t.Fatal("the node that was just cancelled is not used again")
	}
	if old.State() != timeout.Done || old.Cancel() || h.State() != timeout.Pending {
		t.Error("the handle of the earlier life reaches the later one")
	}
	// The worker finds it pending, and keeps it.
	changed := takeChanged(in)
	if len(changed) != 1 || len(in.Drop(changed)) != 1 {
		t.Fatal("the worker lets go of a node that is in use")
	}
	// It is with the worker, not free.
	if other, _ := put(t, in, 40); other == n {
		t.Fatal("a node serves two timeouts at once")
	}
	checkSlabs(t, &in.free, 2)
}

func TestCancelledNodeIsNotReusedOnceTheWorkerLooksAtIt(t *testing.T) {
	in := newInbox()
	n, _ := put(t, in, 10)
	take(in)
	cancel(in, n)
	changed := takeChanged(in)
	if other, _ := put(t, in, 20); other == n {
		t.Fatal("the worker is about to free a node that is in use")
	}
	in.Drop(changed)
	checkSlabs(t, &in.free, 1)
}

// The worker takes a part of many changes, and frees those nodes. The others serve the next
// timeouts where they are, and each node serves one.
func TestNodesFreedBeforeOtherChangesAreTaken(t *testing.T) {
	const count, part = 100, 64
	in := newInbox()
	var nodes []*Node
	for range count {
		n, _ := put(t, in, 10)
		nodes = append(nodes, n)
	}
	take(in)
	for _, n := range nodes {
		cancel(in, n)
	}
	var buf [part]*Node
	if k := in.TakeChanged(buf[:]); k != part || len(in.Drop(buf[:])) != 0 {
		t.Fatalf("%d changes are taken, want %d; or some were armed again", k, part)
	}
	var handles []timeout.Timeout
	for range count {
		_, h := put(t, in, 20)
		handles = append(handles, h)
	}
	for i, h := range handles {
		if h.State() != timeout.Pending {
			t.Fatalf("timeout %d is %v: its node serves a later one", i, h.State())
		}
	}
	if armed := in.Drop(takeChanged(in)); len(armed) != count-part {
		t.Errorf("%d nodes were used again where they are, want %d", len(armed), count-part)
	}
	checkSlabs(t, &in.free, count)
}

func TestClosedInboxRefuses(t *testing.T) {
	in := newInbox()
	n := new(Node)
	n.Bind(adopted)
	p, _ := put(t, in, 10)
	in.Close()
	if _, _, ok := in.Put(1, func() {}); ok {
		t.Error("Put was accepted")
	}
	if _, _, ok := in.Enter(n, 1); ok || n.StateOf(0) != timeout.Idle {
		t.Error("Enter was accepted")
	}
	if _, ok := in.Move(p, p.Life(), 1); ok {
		t.Error("Move was accepted")
	}
	if len(take(in)) != 1 {
		t.Error("what came before is kept")
	}
}

// A goroutine that has cancelled a node is interrupted before it gives the node back. The worker
// has released it meanwhile, and it may serve another timeout, which stays as it is.
func TestCancelledBehindTheWorker(t *testing.T) {
	in := newInbox()
	n, _ := put(t, in, 10)
	life := n.Life()
	take(in)
	n.Withdraw(life)
	in.Drop([]*Node{n})
	again, h := put(t, in, 20)
	if again != n {
		t.Fatal("the released node does not serve the next timeout")
	}
	if in.Cancelled(n, life) || n.Task() == nil || h.State() != timeout.Pending || len(take(in)) != 1 {
		t.Errorf("the next timeout is %v, and may have no task, or not reach the worker", h.State())
	}
	_, cancelled := in.Counts()
	if cancelled != 1 {
		t.Errorf("%d are counted as cancelled, want 1", cancelled)
	}
}

// The worker releases a node that was cancelled while it waited for its turn, before or after the
// inbox is informed. The node is free then, and serves one timeout.
func TestReleasedNodeServesOne(t *testing.T) {
	for _, informed := range []bool{false, true} {
		in := newInbox()
		n, _ := put(t, in, 10)
		take(in)
		life := n.Life()
		n.Withdraw(life)
		if informed && !in.Cancelled(n, life) {
			t.Error("a cancelled node that the worker has is not reclaimed")
		}
		in.Drop([]*Node{n})
		if !informed && in.Cancelled(n, life) {
			t.Error("a free node is reclaimed")
		}
		_, first := put(t, in, 20)
		_, second := put(t, in, 20)
		if first.State() != timeout.Pending || second.State() != timeout.Pending {
			t.Errorf("two timeouts are %v and %v: they share a node", first.State(), second.State())
		}
		checkSlabs(t, &in.free, 2)
	}
}
