//go:build linux

package filestore

import (
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// record is what is stored of one name: its state, and which processes it concerns. A process
// is named by the id of its store; see peers.
type record struct {
	boot  int64 // the folder's clock, see clock
	name  string
	state machine.State
	waits []wait
	of    map[string]string // the store of each of the state's owners; "" if only the TTL ends what it has
}

// wait is a store's subscription to a topic.
type wait struct {
	topic machine.Topic
	store string
}

func (r *record) code(c *machine.Coder) {
	machine.Int(c, &r.boot)
	c.Text(&r.name)
	r.state.Code(c)
	machine.List(c, &r.waits, func(w *wait) {
		c.Topic(&w.topic)
		c.Text(&w.store)
	})
	machine.Map(c, &r.of, c.Text)
}

// read decodes a record, and reports whether it is of the clock boot. Of one that was stored
// before the system was started, and of one that a power failure has damaged, the token is left,
// if anything.
func (r *record) read(b []byte, boot int64) (current bool) {
	if len(b) > 0 && !machine.Decode(b, r.code) {
		*r = record{}
	}
	if current = r.boot == boot; !current {
		r.state.Lose()
		r.boot, r.waits, r.of = boot, nil, nil
	}
	return current
}

// stores returns the other stores that hold the lock or wait for it: holders first.
func (r *record) stores(own string) (ids []string) {
	add := func(id string) {
		if id != "" && id != own && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, owner := range r.state.Owners() {
		add(r.of[owner])
	}
	for _, w := range r.waits {
		add(w.store)
	}
	return ids
}

// own records which store an owner belongs to.
func (r *record) own(owner, store string) {
	if r.of == nil {
		r.of = make(map[string]string)
	}
	r.of[owner] = store
}

// assign records which store each owner of the state belongs to: new ones to the store id. It reports
// whether there are any but places in a queue, which those before them need not watch.
func (r *record) assign(id string) (added bool) {
	owners := r.state.Owners()
	of := make(map[string]string, len(owners))
	for _, owner := range owners {
		store, known := r.of[owner]
		if !known {
			store, added = id, added || !r.state.Queues(owner)
		}
		of[owner] = store
	}
	r.of = of
	return added
}

// message is a notice for another store's subscriptions. Without a name it is for all of them.
type message struct {
	name string
	machine.Message
}

func (m *message) code(c *machine.Coder) {
	n := &m.Notice
	c.Text(&m.name)
	c.Topic(&m.To)
	c.Text(&n.Owner)
	machine.Int(c, &n.Token)
	machine.Int(c, &n.Reserved)
	machine.Int(c, &n.TTL)
	micros := int64(0)
	if !n.At.IsZero() {
		micros = n.At.UnixMicro()
	}
	if machine.Int(c, &micros); micros != 0 {
		n.At = time.UnixMicro(micros)
	}
}

// announced is the record of a client, until its end.
type announced struct {
	driver.Client
	ends int64 // µs
}

func (a *announced) code(c *machine.Coder) {
	c.Client(&a.Client)
	machine.Int(c, &a.ends)
}
