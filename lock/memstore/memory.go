package memstore

import (
	"container/heap"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// memory has the locks of all stores that were opened on it.
type memory struct {
	start time.Time // read from the wall clock once: what happens to that clock later changes no TTL and no token

	mu      sync.Mutex // guards all below, and what the names have; notify is called with it
	names   map[string]*name
	records map[string]record // of clients, by their ids
	stores  int               // that are open
	checks  checks
	check   *time.Timer // for the first of checks; nil until there is one
}

// name has what is stored under a name.
type name struct {
	machine.State
	text        string
	subscribers machine.Subscribers
	// checked is when to drop the name if nothing is left of it. Zero: it is not in checks.
	checked time.Time
}

// listening returns how many stores are subscribed to a topic. The caller holds memory.mu.
func (n *name) listening(t machine.Topic) int {
	stores := make(map[driver.Store]bool)
	for _, b := range n.subscribers[t] {
		stores[b.Store] = true
	}
	return len(stores)
}

// record is that of a client, until its end.
type record struct {
	driver.Client
	ends time.Time
}

const (
	// keptFor is how long a name outlives its end, so that one in use is not made anew each time.
	keptFor = time.Second
	// checksAtOnce bounds for how long checks keep requests waiting: 0.1 ms.
	checksAtOnce = 1000
)

// now is the time by the monotonic clock.
func (m *memory) now() time.Time { return m.start.Add(time.Since(m.start)) }

// name returns what is stored under a name. The caller holds mu.
func (m *memory) name(text string, now time.Time) *name {
	n := m.names[text]
	if n == nil {
		n = &name{text: text, subscribers: make(machine.Subscribers)}
		n.Listening = n.listening
		m.names[text] = n
	}
	if n.checked.IsZero() {
		m.plan(n, now, now.Add(keptFor))
	}
	return n
}

// plan has a name checked. The caller holds mu.
func (m *memory) plan(n *name, now, at time.Time) {
	n.checked = at
	heap.Push(&m.checks, n)
	if m.checks[0] == n {
		m.arm(now)
	}
}

// arm has the first check made in time. The caller holds mu.
func (m *memory) arm(now time.Time) {
	switch {
	case len(m.checks) == 0 || m.stores == 0:
	case m.check == nil:
		m.check = time.AfterFunc(m.checks[0].checked.Sub(now), m.dropEnded)
	default:
		m.check.Reset(m.checks[0].checked.Sub(now))
	}
}

// dropEnded drops names of which nothing is left.
func (m *memory) dropEnded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for range checksAtOnce {
		if len(m.checks) == 0 || m.checks[0].checked.After(now) {
			break
		}
		n := heap.Pop(&m.checks).(*name)
		n.checked = time.Time{}
		switch ends, end := n.Ends(); {
		case !end || len(n.subscribers) > 0: // the next request plans a check
		case ends.Add(keptFor).After(now):
			m.plan(n, now, ends.Add(keptFor))
		default:
			delete(m.names, n.text)
		}
	}
	maps.DeleteFunc(m.records, func(_ string, r record) bool { return now.After(r.ends) })
	m.arm(now)
}

// named returns the names with a prefix. The caller holds mu.
func (m *memory) named(prefix string) (names []string) {
	for text := range m.names {
		if strings.HasPrefix(text, prefix) {
			names = append(names, text)
		}
	}
	return names
}

func (m *memory) lose(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[text]; n != nil {
		n.Lose()
	}
}

// unsubscribe ends the subscriptions of a store. The caller holds mu.
func (m *memory) unsubscribe(s driver.Store) {
	now := m.now()
	for text, n := range m.names {
		for _, b := range n.subscribers.Of(s) {
			n.subscribers.Remove(b)
			m.name(text, now) // plans a check
		}
	}
}

// client returns the record of a client. The caller holds mu.
func (m *memory) client(id string) (driver.Client, bool) {
	r := m.records[id]
	return r.Client, m.now().Before(r.ends)
}

// checks is a heap of names, in the order of their checks.
type checks []*name

func (c checks) Len() int           { return len(c) }
func (c checks) Less(i, j int) bool { return c[i].checked.Before(c[j].checked) }
func (c checks) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *checks) Push(n any)        { *c = append(*c, n.(*name)) }

func (c *checks) Pop() any {
	last := len(*c) - 1
	n := (*c)[last]
	(*c)[last] = nil
	*c = (*c)[:last]
	return n
}
