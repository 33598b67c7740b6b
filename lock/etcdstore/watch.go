package etcdstore

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

const (
	// watchPause is the pause before a watch is begun again.
	watchPause = 100 * time.Millisecond
	// mostWatchPause is the longest one, if the watch is refused again and again.
	mostWatchPause = time.Second
	// streamKey is metadata of watches: the client has a stream for each value.
	streamKey = "leasewheel-stream"
	// beginWithin is how long watches may take to begin on a stream that has refused one.
	beginWithin = 5 * time.Second
)

// stream is one of the client's for watches. It ends when all of them have.
type stream struct {
	number int
	turn   chan struct{}   // has an element while a watch begins on it
	stuck  context.Context // ends, with the cause, when no watch begins on it any more
	end    context.CancelCauseFunc
}

func newStream(number int) *stream {
	st := &stream{number: number, turn: make(chan struct{}, 1)}
	st.stuck, st.end = context.WithCancelCause(context.Background())
	return st
}

// watchOnce watches a key until next returns false, or the watch ends: with its context, with the
// connection of its member to a leader, as the revision it is at is compacted, or because the
// cluster has begun anew, with smaller revisions. It returns the error by which the watch has ended, if any.
//
// A member judges the watches of a stream by the user's token that the stream began with. That may have
// ended, or there was none before authentication was enabled, and other watches keep the stream open. So
// the next watch has another stream after an error.
//
// A stream of etcd's client (3.7.3) that refuses two watches at once may end without the second one, whose
// Watch then returns with its context only, and the client's Close never. So watches begin one by one, as the
// client sends them. One that is ended meanwhile leaves its turn early, so a stream may still be stuck: its
// watches are ended, but not at once, as the client would keep the stream of a watch that is ended while it begins.
func (s *Store) watchOnce(ctx context.Context, key string, from int64, next func(clientv3.WatchResponse) bool, options ...clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s.mu.Lock()
	anew, stream := s.anew, s.stream
	s.mu.Unlock()
	defer context.AfterFunc(anew, cancel)()
	ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.Itoa(stream.number))
	options = append(options, clientv3.WithCreatedNotify(), clientv3.WithRev(from))
	begun := context.AfterFunc(stream.stuck, cancel)
	select {
	case stream.turn <- struct{}{}:
	case <-ctx.Done():
		begun()
		return context.Cause(stream.stuck)
	}
	responses := s.client.Watch(ctx, key, options...) // a refused one returns when its stream has counted it out
	<-stream.turn
	if !begun() {
		return context.Cause(stream.stuck)
	}
	for r := range responses {
		if err := r.Err(); err != nil {
			s.refused(stream, err)
			return err
		}
		if !next(r) {
			break
		}
	}
	return nil
}

// refused has the next watches begin on another stream than one that has refused a watch.
func (s *Store) refused(by *stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == by {
		s.stream = newStream(by.number + 1)
		time.AfterFunc(s.beginWithin, func() { by.end(err) })
	}
}

// awaitDeletion waits until a key is gone that was there at a revision.
// began, if any, is called once the key is watched that is there.
func (s *Store) awaitDeletion(ctx context.Context, key string, from int64, began func()) (gone bool) {
	for failures := 0; ctx.Err() == nil; failures++ {
		s.watchOnce(ctx, key, from, func(r clientv3.WatchResponse) bool { //nolint:errcheck // it is begun again
			if r.Created { // what was deleted before from is not reported
				failures = 0
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
		backoff.Sleep(ctx, backoff.Pause(failures, watchPause, mostWatchPause))
		if _, revision, err := s.there(ctx, key); err == nil {
			from = revision + 1
		}
	}
	return false
}

// there reports whether the key of a lease is there, and at which revision.
func (s *Store) there(ctx context.Context, key string) (there bool, revision int64, err error) {
	response, err := s.get(ctx, key)
	if err != nil {
		return false, 0, err
	}
	return living(response.Kvs), response.Header.Revision, nil
}
