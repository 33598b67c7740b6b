package etcdstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

const (
	// forever is the TTL of a hold by the machine's clock, which ends none here.
	forever = 100 * 365 * 24 * time.Hour
	// maxOps is how many operations etcd accepts in a transaction by default.
	maxOps = 128
)

// version is one of a record's key. Without a value there was no key.
type version struct {
	revision int64
	value    []byte
}

// change makes a step on a record, in memory, and returns the messages. It is called again if
// the record has changed meanwhile.
type change func(w *work) []machine.Message

// work is a request's work on a record.
type work struct {
	record
	s      *Store
	name   string
	now    time.Time
	life   map[clientv3.LeaseID]bool // what is known
	asked  []clientv3.LeaseID        // whose life the result depends on, and is unknown
	before []byte
	token  int64 // the last one before the step
	topics []machine.Topic
	claims map[string]time.Duration    // owners that were granted something, for a TTL
	fixed  map[string]*lease           // owners that get a lease of their own
	prior  map[string]clientv3.LeaseID // by which owners of claims have held the lock
	move   bool                        // claims are to have other leases than before
	bump   []*lease                    // leases whose requests on their way are prevented
	uses   []*lease                    // leases by which the step claims something
	// remains is the lease of what is left for a while: of a record without a hold, and of notes.
	remains []*lease
}

// outcome is that of a step.
type outcome struct {
	*work
	revision int64
}

// leaseOf returns the lease by which the step has claimed something for an owner.
func (o outcome) leaseOf(owner string) *lease { return o.s.leases.own(o.of[owner].lease) }

// lastToken returns the record's last token.
func (o outcome) lastToken() int64 {
	if o.granted {
		return o.s.epochBase() + o.revision
	}
	return o.state.Token()
}

// step makes a step on the record of a name. It compares the revision of the record as it
// writes, so that the steps of all stores follow one another. h is the hold that a step without
// an answer may still grant.
func (s *Store) step(ctx context.Context, name string, h hold, change change) (outcome, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return outcome{}, err
	}
	leave, err := s.enter(ctx, name)
	if err != nil {
		return outcome{}, unsent(err)
	}
	defer leave()
	v, read := s.cached(name), false // read: v was the key's version during this request
	life := make(map[clientv3.LeaseID]bool)
	for {
		w, err := s.load(name, v, life)
		if err == nil {
			w.change(change)
		} else if read {
			return outcome{}, err
		}
		switch {
		case (err != nil || len(w.asked) > 0) && !read:
			v, err = s.read(ctx, name)
			read = err == nil
		case len(w.asked) > 0:
			err = s.look(ctx, w.asked, life)
		default:
			var t transaction
			if t, err = s.commit(ctx, w, v, read); t.done {
				return outcome{w, t.revision}, nil
			} else if t.sent && err != nil {
				if h.owner != "" {
					s.leases.doubt(h, w.uses)
				}
				s.forget(name)
				return outcome{}, failed(err)
			} else if t.read {
				v, read = t.version, true
			}
		}
		if err != nil {
			return outcome{}, unsent(err)
		}
	}
}

// view makes a step that is not stored.
func (s *Store) view(ctx context.Context, name string, change change) (outcome, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return outcome{}, err
	}
	for life := make(map[clientv3.LeaseID]bool); ; {
		v, err := s.read(ctx, name)
		if err != nil {
			return outcome{}, unsent(err)
		}
		w, err := s.load(name, v, life)
		if err != nil {
			return outcome{}, err
		}
		w.release()
		change(w)
		if len(w.asked) == 0 {
			return outcome{w, v.revision}, nil
		}
		if err := s.look(ctx, w.asked, life); err != nil {
			return outcome{}, unsent(err)
		}
	}
}

// load decodes a version of a record.
func (s *Store) load(name string, v version, life map[clientv3.LeaseID]bool) (*work, error) {
	w := &work{s: s, name: name, now: s.now(), life: life}
	if len(v.value) > 0 && !decode(v.value, w.code) {
		return nil, fmt.Errorf("etcdstore: the record of %q is of another version: %w: %w", name, driver.ErrForeign, driver.ErrNotDone)
	}
	if w.granted {
		w.granted = false
		w.state.SetToken(s.epochBase() + v.revision)
	}
	w.before, w.token = encode(w.code), w.state.Token()
	w.state.Listening = w.listening
	return w, nil
}

// change makes a step, once what ended leases have is released.
func (w *work) change(change change) {
	w.subscribe()
	w.release()
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

// alive reports whether a lease lives. If that is unknown it is supposed to, and asked.
func (w *work) alive(id clientv3.LeaseID) bool {
	if id == 0 || w.s.leases.alive(id) || w.s.watched(id) {
		return true
	}
	alive, known := w.life[id]
	if !known {
		w.ask(id)
	}
	return alive || !known
}

func (w *work) ask(id clientv3.LeaseID) {
	if !slices.Contains(w.asked, id) {
		w.asked = append(w.asked, id)
	}
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

// claim gives an owner's part of the state a TTL of its own.
func (w *work) claim(owner string, ttl time.Duration) {
	if w.claims == nil {
		w.claims = make(map[string]time.Duration)
	}
	w.claims[owner] = ttl
}

// claimFixed gives an owner's part of the state a lease of its own.
func (w *work) claimFixed(owner string, l *lease) {
	w.fixed = map[string]*lease{owner: l}
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
// lock has it by the lease of its store's subscription, until it asks again.
func (w *work) address(messages []machine.Message) {
	for _, m := range messages {
		if m.To.Kind != driver.KindMutex {
			w.topics = append(w.topics, m.To)
		}
		for _, wait := range w.waits {
			if wait.topic != m.To || !w.alive(wait.lease) {
				continue
			}
			if owner := m.Notice.Owner; owner != "" {
				if w.of == nil {
					w.of = make(map[string]claim)
				}
				w.of[owner] = claim{wait.lease, waitTTL, w.now.UnixMicro()}
			}
			if !slices.Contains(w.topics, m.To) {
				w.topics = append(w.topics, m.To)
			}
			break
		}
	}
}

// assign keeps the claims of the owners that are left. An owner that only waits lives by the
// lease of its store's subscriptions.
func (w *work) assign() {
	granted := w.state.Token() != w.token
	of := make(map[string]claim)
	w.prior = make(map[string]clientv3.LeaseID)
	for _, owner := range w.state.Owners() {
		o, known := w.of[owner]
		ttl, claimed := w.claims[owner]
		switch {
		case claimed:
			if !known || granted {
				o.since = w.now.UnixMicro()
			}
			if o.lease != 0 {
				w.prior[owner] = o.lease
			}
			o.ttl, o.lease = ttl, 0
			if l := w.fixed[owner]; l != nil {
				o.lease = l.id
			}
		case !known:
			o = claim{0, waitTTL, w.now.UnixMicro()}
		}
		of[owner] = o
	}
	if w.of = of; len(of) == 0 {
		w.of = nil
	}
}

// settle finds the leases of the step's claims.
func (w *work) settle(ctx context.Context) error {
	use := func(l *lease) {
		if !slices.Contains(w.uses, l) {
			w.uses = append(w.uses, l)
		}
	}
	for owner, l := range w.fixed {
		if _, claimed := w.of[owner]; claimed {
			use(l)
		}
	}
	for _, owner := range sortedKeys(w.of) {
		o := w.of[owner]
		if o.lease != 0 {
			continue
		}
		var l *lease
		var err error
		if _, claimed := w.claims[owner]; claimed {
			l, err = w.s.leases.after(ctx, o.ttl, w.prior[owner], w.move)
		} else {
			l, err = w.s.waiter(ctx)
		}
		if err != nil {
			return err
		}
		use(l)
		o.lease = l.id
		w.of[owner] = o
	}
	for i := range w.waits {
		if w.waits[i].lease == 0 {
			l, err := w.s.waiter(ctx)
			if err != nil {
				return err
			}
			use(l)
			w.waits[i].lease = l.id
		}
	}
	return nil
}

// transaction is what has become of a step.
type transaction struct {
	done bool // it is stored, or changes nothing
	sent bool // it may be stored, in spite of an error
	read bool // version is what the key has
	version
}

// commit writes a record if it has changed. read reports whether v was read in this request.
func (s *Store) commit(ctx context.Context, w *work, v version, read bool) (t transaction, err error) {
	if err := w.settle(ctx); err != nil {
		return t, err
	}
	w.granted = w.state.Token() != w.token
	value := encode(w.code)
	changed := !bytes.Equal(value, w.before)
	if !changed && len(w.topics) == 0 && len(w.bump) == 0 {
		if read {
			return transaction{done: true, version: v}, nil
		}
		v, err = s.read(ctx, w.name)
		return transaction{read: err == nil, version: v}, err
	}
	ops, err := w.operations(ctx, v, value, changed)
	if err != nil {
		return t, err
	}
	key, epoch := s.keys.lock(w.name), s.keys.epoch()
	compare := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", v.revision),
		clientv3.Compare(clientv3.ModRevision(epoch), "=", s.epochRevision()),
	}
	otherwise := []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(epoch)}
	for i, guard := range s.leases.guards(w.uses) {
		compare = append(compare, clientv3.Compare(clientv3.ModRevision(w.uses[i].key), "=", guard))
		otherwise = append(otherwise, clientv3.OpGet(w.uses[i].key))
	}
	if err := ctx.Err(); err != nil {
		return t, err
	}
	response, err := s.transact(ctx, compare, ops, otherwise)
	switch {
	case err != nil && code(err) == codes.NotFound: // one of the leases
		return t, s.look(ctx, w.attached(), w.life)
	case err != nil:
		t.sent = !refused(err)
		return t, err
	case response.Succeeded:
		t = transaction{done: true, version: v}
		s.leases.bumped(w.bump, response.Header.Revision)
		if changed {
			t.version = version{response.Header.Revision, value}
		}
		if len(response.Responses) > 0 && response.Responses[len(ops)-1].GetResponseDeleteRange() != nil {
			s.forget(w.name)
		} else if changed {
			s.remember(w.name, t.version)
		}
		return t, nil
	}
	return s.refute(ctx, w, response.Responses)
}

// refute reads why a transaction was not made.
func (s *Store) refute(ctx context.Context, w *work, responses []*pb.ResponseOp) (t transaction, err error) {
	t.read = true
	for i, r := range responses {
		kvs := r.GetResponseRange().Kvs
		switch {
		case i == 0 && len(kvs) > 0:
			t.version = version{kvs[0].ModRevision, kvs[0].Value}
		case i == 0:
		case i == 1 && len(kvs) > 0:
			s.setEpoch(kvs[0].Value, kvs[0].ModRevision)
		case i == 1:
			err = s.openEpoch(ctx)
		case len(kvs) == 0:
			s.leases.ended(w.uses[i-2])
		default:
			s.leases.bumped(w.uses[i-2:i-1], kvs[0].ModRevision)
		}
	}
	return t, err
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
func (w *work) operations(ctx context.Context, v version, value []byte, changed bool) (ops []clientv3.Op, err error) {
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
		ops = append(ops, w.write(ids, v, string(value)))
	}
	return ops, nil
}

// write returns the operation that stores the record. Its key ends by itself with the one lease by
// which all of the record lives, or a while after the last hold was released. If several stores
// have a part in it, no lease ends it: see sweep.
func (w *work) write(ids []clientv3.LeaseID, v version, value string) clientv3.Op {
	key := w.s.keys.lock(w.name)
	switch {
	case len(ids) == 0 && w.state.Token() == 0 && v.revision > 0:
		return clientv3.OpDelete(key)
	case len(ids) == 0:
		return clientv3.OpPut(key, value, clientv3.WithLease(w.remains[0].id))
	case len(ids) == 1:
		return clientv3.OpPut(key, value, clientv3.WithLease(ids[0]))
	}
	w.s.planSweep()
	return clientv3.OpPut(key, value)
}

// transact makes a transaction.
func (s *Store) transact(ctx context.Context, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	return somewhere(ctx, func() (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	})
}

// get reads keys.
func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return somewhere(ctx, func() (*clientv3.GetResponse, error) { return s.client.Get(ctx, key, options...) })
}

// put stores a key.
func (s *Store) put(ctx context.Context, key, value string, l clientv3.LeaseID) (*clientv3.PutResponse, error) {
	return somewhere(ctx, func() (*clientv3.PutResponse, error) { return s.client.Put(ctx, key, value, clientv3.WithLease(l)) })
}

// grant has an etcd lease granted, for a TTL rounded up.
func (s *Store) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	return somewhere(ctx, func() (*clientv3.LeaseGrantResponse, error) { return s.client.Grant(ctx, seconds) })
}

// read reads the record of a name.
func (s *Store) read(ctx context.Context, name string) (v version, err error) {
	response, err := s.get(ctx, s.keys.lock(name))
	if err == nil && len(response.Kvs) > 0 {
		v = version{response.Kvs[0].ModRevision, response.Kvs[0].Value}
	}
	return v, err
}

// look finds out which leases live. One whose key is gone never comes back.
func (s *Store) look(ctx context.Context, ids []clientv3.LeaseID, life map[clientv3.LeaseID]bool) error {
	for some := range slices.Chunk(ids, maxOps) {
		ops := make([]clientv3.Op, len(some))
		for i, id := range some {
			ops[i] = clientv3.OpGet(s.keys.lease(id), clientv3.WithKeysOnly())
		}
		response, err := s.transact(ctx, nil, ops, nil)
		if err != nil {
			return err
		}
		for i, id := range some {
			life[id] = len(response.Responses[i].GetResponseRange().Kvs) > 0
			if l := s.leases.own(id); l != nil && !life[id] {
				s.leases.ended(l)
			}
		}
	}
	return nil
}

// epoch is what the tokens of a prefix begin with: the clock, in µs, as its first store read it.
// Tokens are this and a revision, so that they grow although a cluster is made anew.
type epoch struct{ base, revision int64 }

func (s *Store) epochBase() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch.base
}

func (s *Store) epochRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch.revision
}

func (s *Store) setEpoch(value []byte, revision int64) {
	base, _ := strconv.ParseInt(string(value), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch.revision != 0 && s.epoch.base != base {
		s.endWatches()
		s.anew, s.endWatches = context.WithCancel(context.Background())
		clear(s.cache)
	}
	s.epoch = epoch{base, revision}
}

// openEpoch reads the epoch, or begins it.
func (s *Store) openEpoch(ctx context.Context) error {
	key := s.keys.epoch()
	now := strconv.FormatInt(s.now().UnixMicro(), 10)
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", 0)}
	response, err := s.transact(ctx, absent, []clientv3.Op{clientv3.OpPut(key, now)}, []clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return err
	}
	if response.Succeeded {
		s.setEpoch([]byte(now), response.Header.Revision)
	} else if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		s.setEpoch(kvs[0].Value, kvs[0].ModRevision)
	}
	return nil
}

// begin is called before each request.
func (s *Store) begin(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	if s.epochRevision() > 0 {
		return nil
	}
	if err := s.openEpoch(ctx); err != nil {
		return unsent(err)
	}
	return nil
}

// bound returns a context that ends with the store, too. With it a member without a leader refuses
// requests at once.
func (s *Store) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
