package etcdstore

import (
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// record is what is stored of one name, in one key: its state, and the etcd leases by which the
// parts of it live. No part ends by a clock but places in a queue and what blocks readers.
type record struct {
	state machine.State
	// granted: the revision at which this version of the key was written is the last token.
	granted bool
	of      map[string]claim // by owner: of every one of state.Owners
	waits   []wait
}

// claim is what an owner's part of the state lives by.
type claim struct {
	lease clientv3.LeaseID
	ttl   time.Duration
	since int64 // µs
}

// wait is a store's subscription to a topic.
type wait struct {
	topic machine.Topic
	lease clientv3.LeaseID
}

// recordVersion precedes every record. A store that finds another one leaves the name alone.
const recordVersion = 1

func (r *record) code(c *machine.Coder) {
	version := recordVersion
	if machine.Int(c, &version); version != recordVersion {
		c.Bad = true
		return
	}
	r.state.Code(c)
	c.Bool(&r.granted)
	machine.Map(c, &r.of, func(o *claim) {
		machine.Int(c, &o.lease)
		machine.Int(c, &o.ttl)
		machine.Int(c, &o.since)
	})
	machine.List(c, &r.waits, func(w *wait) {
		c.Topic(&w.topic)
		machine.Int(c, &w.lease)
	})
}

// leases returns the etcd leases by which parts of the record live, each once, those of holders first.
func (r *record) leases() (ids []clientv3.LeaseID) {
	add := func(id clientv3.LeaseID) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, owner := range r.state.Owners() {
		add(r.of[owner].lease)
	}
	for _, w := range r.waits {
		add(w.lease)
	}
	return ids
}
