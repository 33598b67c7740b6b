package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchPause is the pause before a watch is begun again.
const watchPause = 100 * time.Millisecond

// watchOnce watches a key until next returns false, or the watch ends: with its context, with the
// connection of its member to a leader, as the revision it is at is compacted, or because the
// cluster has begun anew, with smaller revisions.
func (s *Store) watchOnce(ctx context.Context, key string, from int64, next func(clientv3.WatchResponse) bool, options ...clientv3.OpOption) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s.mu.Lock()
	anew := s.anew
	s.mu.Unlock()
	defer context.AfterFunc(anew, cancel)()
	options = append(options, clientv3.WithCreatedNotify(), clientv3.WithRev(from))
	for r := range s.client.Watch(ctx, key, options...) {
		if r.Err() != nil || !next(r) {
			return
		}
	}
}

// awaitDeletion waits until a key is gone that was there at a revision.
// began, if any, is called once the key is watched that is there.
func (s *Store) awaitDeletion(ctx context.Context, key string, from int64, began func()) (gone bool) {
	for ctx.Err() == nil {
		s.watchOnce(ctx, key, from, func(r clientv3.WatchResponse) bool {
			if r.Created { // what was deleted before from is not reported
				there, _, err := s.there(ctx, key)
				if gone = err == nil && !there; err == nil && there && began != nil {
					began()
				}
			}
			gone = gone || len(r.Events) > 0
			return !gone
		}, clientv3.WithFilterPut())
		if gone {
			return true
		}
		pause(ctx, watchPause)
		if _, revision, err := s.there(ctx, key); err == nil {
			from = revision + 1
		}
	}
	return false
}

// there reports whether the key of a lease is there, and at which revision.
func (s *Store) there(ctx context.Context, key string) (there bool, revision int64, err error) {
	response, err := s.get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return false, 0, err
	}
	return living(response.Kvs), response.Header.Revision, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
