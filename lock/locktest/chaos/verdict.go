package chaos

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
)

// The promises that are checked.
const (
	oneHolder      = "one valid holder at a time"
	readersApart   = "readers and a writer are apart"
	tokensGrow     = "tokens grow"
	tokensBounded  = "tokens are numbers from 1 to 2^53"
	permitsExist   = "permits in use never exceed the count"
	linearizable   = "a lock with fencing explains the history"
	messageKept    = "an accepted message is handled"
	messageApart   = "a message has one worker at a time"
	contextEnds    = "a handler's context ends before the next worker begins"
	noNeighbour    = "no failure from a neighbour"
	heldSurvives   = "a held lease survives what does not concern it"
	lostInTime     = "a lease is lost at its end"
	heldReleases   = "what is held can be released out of memory"
	foreignTold    = "a foreign value is reported as such"
	serverAnswers  = "nothing written makes the server hang"
	heldBySomebody = "a held lock has a holder"
	freeGranted    = "a free lock is granted"
	wantedGranted  = "a lock is granted whatever fails elsewhere"
	noWaiterStuck  = "no waiter is stuck"
	permitsBack    = "permits come back"
	queueDrained   = "the queue is drained"
	keysEnd        = "keys have a time to live"
	noSubscription = "no subscription is left"
	noGoroutine    = "no goroutine is left"
	heapBounded    = "the heap is given back"
	calledOnce     = "a deferred function runs once"
	latchCloses    = "a closed latch lets no waiter pass"
	noCrash        = "no process ends by itself"
)

var promises = []string{
	oneHolder, readersApart, tokensGrow, tokensBounded, permitsExist, linearizable, messageKept, messageApart, contextEnds,
	noNeighbour, heldSurvives, lostInTime, heldReleases, foreignTold, serverAnswers, heldBySomebody, freeGranted, wantedGranted, noWaiterStuck,
	permitsBack, queueDrained, keysEnd, noSubscription, noGoroutine, heapBounded, calledOnce, latchCloses, noCrash,
}

// safety are the promises that hold on any machine. One that stalls for long is late with the others.
var safety = []string{
	oneHolder, readersApart, tokensGrow, tokensBounded, permitsExist, linearizable, messageKept, messageApart,
	heldReleases, foreignTold, calledOnce, latchCloses, noCrash,
}

// breach is one break of a promise.
type breach struct {
	Promise string   `json:"promise"`
	Seed    uint64   `json:"seed"`
	Round   int      `json:"round"`
	Site    site     `json:"site"`
	At      string   `json:"at"`
	What    string   `json:"what"`
	Faults  []string `json:"faults"`
	History []string `json:"history"`

	repeat string // the flags that repeat the round
}

func (b breach) String() string {
	return fmt.Sprintf("BROKEN %s: %s\n  repeat with: %s (%s), at %s\n  faults: %s\n  history:\n    %s\n",
		b.Promise, b.What, b.repeat, b.Site, b.At, strings.Join(b.Faults, "; "), strings.Join(b.History, "\n    "))
}

// tally counts the checks, and records the breaches.
type tally struct {
	mu       sync.Mutex
	checked  map[string]int
	unjudged map[string]int // a fault has voided the promise, or the checker gave up
	broken   map[string]int
	breaches []breach // the first few of each promise in each round
}

func newTally() *tally {
	return &tally{checked: map[string]int{}, unjudged: map[string]int{}, broken: map[string]int{}}
}

func (t *tally) check(promise string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checked[promise] += n
}

func (t *tally) excuse(promise string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unjudged[promise]++
}

// total returns the number of breaches.
func (t *tally) total() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.broken {
		n += b
	}
	return n
}

// unsafe returns the number of breaches that no stall of the machine excuses.
func (t *tally) unsafe() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range safety {
		n += t.broken[p]
	}
	return n
}

func (t *tally) table(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "checked\tvoided\tbroken\t  promise\n")
	for _, p := range promises {
		fmt.Fprintf(w, "%d\t%d\t%d\t  %s\n", t.checked[p], t.unjudged[p], t.broken[p], p)
	}
	_ = w.Flush()
}

// broke records a breach between two instants.
func (r *judge) broke(promise string, from, to instant, what string, uses ...*use) {
	b := breach{Promise: promise, Seed: r.plan.Seed, Round: r.plan.Round, Site: r.plan.Site, What: what, repeat: r.repeat}
	b.At = from.of(r.begun)
	for _, w := range r.journal.between(from-instant(2e9), to, nil) {
		b.Faults = append(b.Faults, fmt.Sprintf("%v %s-%s", w, w.Begin.of(r.begun), w.End.of(r.begun)))
	}
	for _, u := range uses {
		b.History = append(b.History, u.in(r.begun))
	}
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	r.tally.broken[promise]++
	if r.told[promise]++; r.told[promise] <= 3 {
		r.tally.breaches = append(r.tally.breaches, b)
		r.t.Log(b.String())
	}
}
