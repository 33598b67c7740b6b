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
)

// stream is one of the client's for watches. It ends when all of them have.
type stream struct {
	number int
	turn   chan struct{} // has an element while a watch begins on it
}

func newStream(number int) *stream {
	return &stream{number: number, turn: make(chan struct{}, 1)}
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
// client sends them.
func (e *etcd) watchOnce(ctx context.Context, key string, next func(clientv3.WatchResponse) bool, options ...clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	e.mu.Lock()
	anew, stream := e.anew, e.stream
	e.mu.Unlock()
	defer context.AfterFunc(anew, cancel)()
	ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.Itoa(stream.number))
	options = append(options, clientv3.WithCreatedNotify())
	select {
	case stream.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	responses := e.client.Watch(ctx, key, options...) // a refused one returns when its stream has counted it out
	<-stream.turn
	for r := range responses {
		if err := r.Err(); err != nil {
			e.leave(stream)
			return err
		}
		if !next(r) {
			break
		}
	}
	return nil
}

// leave has the next watches begin on another stream.
func (e *etcd) leave(of *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stream == of {
		e.stream = newStream(of.number + 1)
	}
}

// awaitDeletion waits until a key is gone that was there. began, if any, is called once the key is watched that is
// there.
func (e *etcd) awaitDeletion(ctx context.Context, key string, began func()) (gone bool) {
	for failures := 0; ctx.Err() == nil; failures++ {
		e.watchOnce(ctx, key, func(r clientv3.WatchResponse) bool { //nolint:errcheck // it is begun again
			if r.Created { // what was deleted before is not reported
				failures = 0
				response, err := e.get(ctx, key)
				if err != nil {
					return false
				}
				if gone = !living(response.Kvs); !gone && began != nil {
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
	}
	return false
}
