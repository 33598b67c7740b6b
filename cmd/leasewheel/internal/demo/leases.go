//go:build unix

package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/renewal"
)

// leasesLife is what was seen of the many leases: some of them, and all renewals. Its
// methods are safe for concurrent use.
type leasesLife struct {
	mu      sync.Mutex
	shown   []*leaseLife
	byName  map[string]*leaseLife // of the lock
	batches []batchLife
}

// leaseLife is the life of one lease. Times that are zero did not come.
type leaseLife struct {
	title                             string
	token                             int64
	asked, granted, deleted, reported time.Time
	cause                             string // of the loss
	renewed                           []time.Time
}

// batchLife is one request that renewed leases.
type batchLife struct {
	sent, answered time.Time
	renewed        int
}

// shownLeases are the numbers of some of n leases, evenly spread: two for each that is
// deleted, of which it is the first.
func shownLeases(n int) []int {
	shown := make([]int, 2*min(keeperDeletes, n))
	for i := range shown {
		shown[i] = i * n / len(shown)
	}
	return slices.Compact(shown)
}

func newLeasesLife() *leasesLife { return &leasesLife{byName: make(map[string]*leaseLife)} }

// show makes the life contain the lease of a lock, under a title.
func (l *leasesLife) show(name, title string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shown := &leaseLife{title: title}
	l.shown = append(l.shown, shown)
	l.byName[name] = shown
}

// change calls f for the lease of a lock, if it is shown.
func (l *leasesLife) change(name string, f func(*leaseLife)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.byName[name]; lease != nil {
		f(lease)
	}
}

func (l *leasesLife) granted(name string, asked, at time.Time, token int64) {
	l.change(name, func(lease *leaseLife) { lease.asked, lease.granted, lease.token = asked, at, token })
}

func (l *leasesLife) deleted(name string, at time.Time) {
	l.change(name, func(lease *leaseLife) { lease.deleted = at })
}

func (l *leasesLife) lossReported(name string, at time.Time, cause string) {
	l.change(name, func(lease *leaseLife) { lease.reported, lease.cause = at, cause })
}

// renewed notes a batch of renewals, and returns how many of them succeeded.
func (l *leasesLife) renewed(items []renewal.Item, sent, answered time.Time) (renewed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range items {
		if items[i].Outcome != renewal.Renewed {
			continue
		}
		renewed++
		if lease := l.byName[items[i].Key]; lease != nil {
			lease.renewed = append(lease.renewed, answered)
		}
	}
	l.batches = append(l.batches, batchLife{sent, answered, renewed})
	return renewed
}

// addTo adds the lives to a timeline.
func (l *leasesLife) addTo(t *timeline, clock hostclock.Clock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		t.batches = append(t.batches, renewalBatch{clock.Of(b.sent), clock.Of(b.answered), b.renewed})
	}
	for _, lease := range l.shown {
		t.leases = append(t.leases, lease.lane(clock))
	}
}

func (l *leaseLife) lane(clock hostclock.Clock) *lane {
	lane := &lane{name: l.title}
	instant := func(at time.Time) hostclock.Instant {
		if at.IsZero() {
			return 0
		}
		return clock.Of(at)
	}
	if l.granted.IsZero() {
		return lane
	}
	over := l.reported
	lane.waited(instant(l.asked), instant(l.granted))
	for _, at := range l.renewed {
		lane.marks = append(lane.marks, mark{markRenewed, instant(at), l.token, ""})
	}
	if !l.deleted.IsZero() {
		over = l.deleted
		lane.marks = append(lane.marks, mark{markDeleted, instant(l.deleted), l.token, ""})
		lane.spans = append(lane.spans, span{spanLost, instant(l.deleted), instant(l.reported), l.token})
	}
	if !l.reported.IsZero() {
		lane.marks = append(lane.marks, mark{markReported, instant(l.reported), l.token, l.cause})
	}
	lane.spans = append(lane.spans, span{spanHeld, instant(l.granted), instant(over), l.token})
	return lane
}
