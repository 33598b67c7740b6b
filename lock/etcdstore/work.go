package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// change makes a step on a record, in memory, and returns the messages. It is called again if
// the record has changed meanwhile.
type change func(w *work) []machine.Message

// work is a request's work on a record.
type work struct {
	record
	version // that the work began with; once it is stored, the new one
	s       *Store
	name    string
	now     time.Time
	life    map[clientv3.LeaseID]bool // what is known
	unknown []clientv3.LeaseID        // whose life the result depends on, and is unknown
	before  []byte
	token   int64 // the last one before the step
	topics  []machine.Topic
	claims  wanted
	queues  bool     // a mutex' queue may have another place, by the lease of the store's subscription
	asks    bool     // the step may ask for a hold, but ends and keeps nothing: others go before it
	bump    []*lease // leases whose requests on their way are prevented
	uses    []*lease // leases by which the step claims something
	// remains is the lease of what is left for a while: of a record without a hold, and of notes.
	remains []*lease
}

// wanted is what a step claims for an owner: that its part of the state has a TTL of its own.
type wanted struct {
	owner string // "": nothing is claimed
	ttl   time.Duration
	by    *lease           // nil: one of the holds of the TTL
	other bool             // not by prior
	prior clientv3.LeaseID // by which the owner has had it before; set by assign
}

// load decodes a version of a record.
func (s *Store) load(name string, v version, life map[clientv3.LeaseID]bool) (*work, error) {
	w := &work{version: v, s: s, name: name, now: s.now(), life: life}
	if len(v.value) > 0 && !machine.Decode(v.value, w.code) {
		return nil, fmt.Errorf("etcdstore: the record of %q is of another version: %w: %w", name, driver.ErrForeign, driver.ErrNotDone)
	}
	if w.granted {
		w.granted = false
		w.state.SetToken(v.epoch + v.revision)
	}
	w.before, w.token = machine.Encode(w.code), w.state.Token()
	w.state.Listening = w.listening
	return w, nil
}

// change makes a step, once what ended leases have is released.
func (w *work) change(change change) {
	w.subscribe()
	w.release()
	w.reject(false)
	w.address(change(w))
	w.assign()
}

// subscribe makes the record have this store's subscriptions to mutexes, which a release grants.
func (w *work) subscribe() {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	local := s.subs[w.name]
	own := func(wait wait) bool { return wait.lease == 0 || s.waits[wait.lease] }
	w.waits = slices.DeleteFunc(w.waits, func(wait wait) bool {
		return own(wait) && (local[wait.topic] == nil || wait.lease != s.waiting)
	})
	for topic := range local {
		if topic.Kind == driver.KindMutex && !slices.ContainsFunc(w.waits, func(wait wait) bool { return wait.topic == topic && own(wait) }) {
			w.waits = append(w.waits, wait{topic, s.waiting})
		}
	}
}

// release releases what leases have that have ended.
func (w *work) release() {
	for _, owner := range sortedKeys(w.of) {
		if alive, known := w.life[w.of[owner].lease]; known && !alive {
			w.address(w.state.Leave(w.now, owner))
		}
	}
	w.waits = slices.DeleteFunc(w.waits, func(wait wait) bool {
		alive, known := w.life[wait.lease]
		return known && !alive
	})
}

// reject releases what a release has granted to owners of this store that wait no longer, or that
// had long enough to request it. No caller has it: a request moves it to a lease of holds.
func (w *work) reject(overdue bool) {
	for _, owner := range sortedKeys(w.of) {
		if w.s.mayReject(w.name, owner, w.of[owner].lease, overdue) && w.holds(owner) {
			w.address(w.state.Leave(w.now, owner))
		}
	}
}

// mayReject reports whether an owner has something by which this store waits, but does not wait.
func (s *Store) mayReject(name, owner string, by clientv3.LeaseID, overdue bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[by] && (overdue || s.subs[name][grantsTo(owner)] == nil)
}

// grantsTo is the topic of what a release grants to an owner's client.
func grantsTo(owner string) machine.Topic {
	return machine.Topics(&driver.Hold{Kind: driver.KindMutex, Owner: owner})[1]
}

// holds reports whether an owner holds the lock.
func (w *work) holds(owner string) bool {
	return slices.ContainsFunc(w.inspect().Holders, func(h driver.Holder) bool { return h.Owner == owner })
}

// alive reports whether a lease lives. If that is unknown it is supposed to, and looked up.
func (w *work) alive(id clientv3.LeaseID) bool {
	if id == 0 || w.s.leases.alive(id) || w.s.watched(id) {
		return true
	}
	alive, known := w.life[id]
	if !known && !slices.Contains(w.unknown, id) {
		w.unknown = append(w.unknown, id)
	}
	return alive || !known
}

// refused is called by a change whose result is another one if an owner's lease has ended.
func (w *work) refused() {
	for _, o := range w.of {
		w.alive(o.lease)
	}
}

// verify is called by a change that depends on whether an owner's own lease has ended.
func (w *work) verify(owner string) {
	if o, known := w.of[owner]; known {
		w.alive(o.lease)
	}
}

// listening returns how many stores are subscribed to a topic.
func (w *work) listening(t machine.Topic) (n int) {
	for _, wait := range w.waits {
		if wait.topic == t && w.alive(wait.lease) {
			n++
		}
	}
	return n
}

// address finds out which messages have subscribers. An owner to which a release has granted the
// lock has it by the lease of its store's subscription, until its next request.
func (w *work) address(messages []machine.Message) {
	for _, m := range messages {
		if m.To.Kind != driver.KindMutex {
			w.note(m.To)
		}
		for _, wait := range w.waits {
			if wait.topic != m.To || !w.alive(wait.lease) {
				continue
			}
			if owner := m.Notice.Owner; owner != "" {
				if w.of == nil {
					w.of = make(map[string]claim)
				}
				w.of[owner] = claim{wait.lease, w.s.waitTTL, w.now.UnixMicro()}
			}
			w.note(m.To)
			break
		}
	}
}

// note has the key of a topic written, once: etcd refuses a transaction that writes a key twice.
func (w *work) note(t machine.Topic) {
	if !slices.Contains(w.topics, t) {
		w.topics = append(w.topics, t)
	}
}

// assign keeps the claims of the owners that are left. An owner that only waits lives by the
// lease of its store's subscriptions.
func (w *work) assign() {
	granted := w.state.Token() != w.token
	of := make(map[string]claim)
	for _, owner := range w.state.Owners() {
		o, known := w.of[owner]
		switch {
		case owner == w.claims.owner:
			if !known || granted {
				o.since = w.now.UnixMicro()
			}
			w.claims.prior, o.ttl, o.lease = o.lease, w.claims.ttl, 0
		case !known:
			o = claim{0, w.s.waitTTL, w.now.UnixMicro()}
		}
		of[owner] = o
	}
	w.of = of
	// Of a queue that has left, each owner was the head in turn: more than a transaction may write.
	w.topics = slices.DeleteFunc(w.topics, func(t machine.Topic) bool {
		_, waits := of[t.Of]
		return t.Kind == driver.KindFair && !waits
	})
}

// settle finds the leases of the step's claims.
func (w *work) settle(ctx context.Context) (err error) {
	use := func(l *lease, err error) (clientv3.LeaseID, error) {
		if err != nil {
			return 0, err
		}
		if !slices.Contains(w.uses, l) {
			w.uses = append(w.uses, l)
		}
		return l.id, nil
	}
	for _, owner := range sortedKeys(w.of) {
		o := w.of[owner]
		if o.lease != 0 {
			continue
		}
		switch c := &w.claims; {
		case owner != c.owner:
			o.lease, err = use(w.s.waiter(ctx))
		case c.by != nil:
			o.lease, err = use(c.by, nil)
		default:
			o.lease, err = use(w.s.leases.after(ctx, o.ttl, c.prior, c.other))
		}
		if err != nil {
			return err
		}
		w.of[owner] = o
	}
	for i := range w.waits {
		if w.waits[i].lease == 0 {
			if w.waits[i].lease, err = use(w.s.waiter(ctx)); err != nil {
				return err
			}
		}
	}
	if w.queues {
		_, err = use(w.s.waiter(ctx))
	}
	return err
}

// attached returns the leases that a transaction attaches keys to.
func (w *work) attached() []clientv3.LeaseID {
	ids := w.leases()
	for _, l := range slices.Concat(w.uses, w.bump, w.remains) {
		if !slices.Contains(ids, l.id) {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// operations returns what a step writes.
func (w *work) operations(ctx context.Context, value []byte, changed bool) (ops []clientv3.Op, err error) {
	ids := w.leases()
	if len(w.topics) > 0 || changed && len(ids) == 0 {
		l, err := w.s.leases.get(ctx, class{remainsTTL, forRemains})
		if err != nil {
			return nil, err
		}
		w.remains = []*lease{l}
	}
	for _, topic := range w.topics {
		ops = append(ops, clientv3.OpPut(w.s.keys.note(w.name, topic), "", clientv3.WithLease(w.remains[0].id)))
	}
	for _, l := range w.bump {
		ops = append(ops, clientv3.OpPut(l.key, "", clientv3.WithLease(l.id)))
	}
	if changed {
		ops = append(ops, w.write(ids, string(value)))
	}
	return ops, nil
}

// write returns the operation that stores the record. Its key ends by itself with the one lease by
// which all of the record lives, or a while after the last hold was released. If several stores
// have a part in it, no lease ends it: see sweep.
func (w *work) write(ids []clientv3.LeaseID, value string) clientv3.Op {
	key := w.s.keys.lock(w.name)
	switch {
	case len(ids) == 0:
		return clientv3.OpPut(key, value, clientv3.WithLease(w.remains[0].id))
	case len(ids) == 1:
		return clientv3.OpPut(key, value, clientv3.WithLease(ids[0]))
	}
	w.s.planSweep()
	return clientv3.OpPut(key, value)
}
