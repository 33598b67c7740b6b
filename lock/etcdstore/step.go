package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// forever is the TTL of a hold by the machine's clock, which ends none here.
const forever = 100 * 365 * 24 * time.Hour

// version is one of a record's key. Without a value there was no key.
type version struct {
	revision int64
	value    []byte
	epoch    int64 // the epoch as it was read or written: in another one the revision is another record's
}

// leaseOf returns the lease by which a step has claimed something for an owner.
func (w *work) leaseOf(owner string) *lease { return w.s.leases.own(w.of[owner].lease) }

// lastToken returns the record's last token.
func (w *work) lastToken() int64 {
	if w.granted {
		return w.epoch + w.revision
	}
	return w.state.Token()
}

// step makes a step on the record of a name. It compares the revision of the record as it
// writes, so that the steps of all stores follow one another. h is the hold that a step without
// an answer may still grant, or move to another lease.
func (s *Store) step(ctx context.Context, name string, h hold, change change) (*work, error) {
	at := s.clock()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	leave, err := s.turns.Take(ctx, name)
	if err != nil {
		return nil, unsent(err)
	}
	defer func() { leave() }()
	v, read := s.cached(name), false // read: v was the key's version during this request
	life := make(map[clientv3.LeaseID]bool)
	conflicts, since := -1, s.clock() // since: when the attempt began
	for {
		w, err := s.load(name, v, life)
		if err == nil {
			w.change(change)
		} else if read {
			return nil, err
		}
		switch {
		case (err != nil || len(w.unknown) > 0) && !read:
			v, err = s.read(ctx, name)
			read = err == nil
		case len(w.unknown) > 0:
			err = s.look(ctx, w.unknown, life)
		default:
			var t transaction
			if t, err = s.commit(ctx, w, read); t.done {
				return w, nil
			} else if t.sent && err != nil {
				if h.owner != "" && !(decided(err) && s.leases.has(h)) { // a renewal finds out by which lease
					s.leases.doubt(h, w.uses, at)
				}
				return nil, failed(err)
			} else if t.read {
				v, read = t.version, true
			}
			if err != nil || !t.conflict {
				break
			}
			if conflicts++; conflicts == 0 { // it may have shown that the cached version is old
				since = s.clock()
				break
			}
			if w.asks { // other steps of this store go before it meanwhile
				leave()
			}
			backoff.Sleep(ctx, backoff.Conflict(conflicts-1, s.clock()-since, w.asks))
			if w.asks {
				if leave, err = s.turns.Take(ctx, name); err != nil {
					leave = func() {}
					break
				}
			}
			since = s.clock()
			v, err = s.read(ctx, name)
		}
		if err != nil {
			return nil, unsent(err)
		}
	}
}

// view makes a step that is not stored.
func (s *Store) view(ctx context.Context, name string, change change) (*work, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	for life := make(map[clientv3.LeaseID]bool); ; {
		v, err := s.read(ctx, name)
		if err != nil {
			return nil, unsent(err)
		}
		w, err := s.load(name, v, life)
		if err != nil {
			return nil, err
		}
		w.release()
		change(w)
		w.state.SetToken(w.token) // what a step would grant has none
		if len(w.unknown) == 0 {
			return w, nil
		}
		if err := s.look(ctx, w.unknown, life); err != nil {
			return nil, unsent(err)
		}
	}
}
