package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/pubsub"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

const (
	// scanCount is how many keys a server examines for one page: about 0.3 ms of its
	// time.
	scanCount = 1000
	// detailBatch is how many locks are read in one pipeline.
	detailBatch = 200
	// pageTimeout bounds each request for a page of a list.
	pageTimeout = 5 * time.Second
)

// List reads the names of every master's hashes with SCAN, page by page, and then the
// locks among them, those of all masters at once. It reads semaphores' permits in use in the
// same way. It omits names that package lock refuses, which no lock of ours has, and keys that
// the user may not access. An error names the master whose locks are missing. Each request
// takes 5 s at most; a server that does not answer is asked twice.
func (s *Store) List(ctx context.Context, prefix string, wanted func(name string) bool) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		publish, err := s.publishing(ctx)
		var masters []*redis.Client
		if err == nil {
			masters, err = s.transport.Masters(ctx)
		}
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		l := &lister{store: s, publish: publish, prefix: prefix, wanted: wanted, listed: make(chan listed)}
		var end context.CancelFunc
		l.ctx, end = context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(s.subscriber.Context(), end)() // Close waits for the readers
		l.begin(masters)
		l.yield(yield)
	}
}

// trace is a key by which locks are found.
type trace struct {
	keyType string
	// pattern returns the pattern of the keys of locks whose names begin with prefix.
	pattern func(prefix string) string
	// locks returns the keys of the locks that may have left the trace.
	locks func(trace key) []key
}

// lister is one run of a list.
type lister struct {
	store   *Store
	ctx     context.Context // ends with the list
	publish string          // see Store.publishing
	prefix  string
	wanted  func(name string) bool
	listed  chan listed // closed when every server has been read
	mute    sync.Map    // see identifyClients
}

// listed is a lock, or an error.
type listed struct {
	info driver.Info
	err  error
}

// begin reads each server in a goroutine of its own.
func (l *lister) begin(masters []*redis.Client) {
	var reading sync.WaitGroup
	reading.Add(len(masters))
	for _, at := range masters {
		l.store.transport.Go(func() {
			defer reading.Done()
			l.read(at)
		})
	}
	l.store.transport.Go(func() {
		reading.Wait()
		close(l.listed)
	})
}

// yield yields what was listed, each lock once. SCAN may return a key twice, and while its
// slot moves, two servers may return it.
func (l *lister) yield(yield func(driver.Info, error) bool) {
	seed, seen := maphash.MakeSeed(), make(map[uint64]struct{})
	for {
		var one listed
		more := false
		select {
		case one, more = <-l.listed:
		case <-l.ctx.Done():
		}
		if !more {
			if err := l.interrupted(); err != nil {
				yield(driver.Info{}, err)
			}
			return
		}
		if one.err == nil {
			sum := maphash.String(seed, one.info.Name)
			if _, twice := seen[sum]; twice {
				continue
			}
			seen[sum] = struct{}{}
		}
		if !yield(one.info, one.err) {
			return
		}
	}
}

// interrupted returns why the list ended before its end, or nil.
func (l *lister) interrupted() error {
	if l.store.subscriber.Context().Err() != nil {
		return pubsub.ErrClosed
	}
	return fault.Classify(l.ctx.Err())
}

// send passes a lock or an error to yield. It reports whether the list goes on.
func (l *lister) send(one listed) bool {
	if l.ctx.Err() != nil {
		return false
	}
	select {
	case l.listed <- one:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// read lists one server's locks.
func (l *lister) read(at *redis.Client) {
	for _, k := range l.store.format.kinds {
		if k.trace == nil {
			continue
		}
		if err := fault.Protect(func() error { return l.scan(at, k.trace) }); err != nil && (!l.send(listed{err: l.failure(at, err)}) || fault.Silent(err)) {
			return
		}
	}
}

// failure is the error of a list that lacks locks of a server.
func (l *lister) failure(at *redis.Client, err error) error {
	if l.store.cluster == nil {
		return err
	}
	return fmt.Errorf("redisstore: locks on %s may be missing: %w", at.Options().Addr, err)
}

// scan lists one server's locks that leave a trace.
func (l *lister) scan(at *redis.Client, t *trace) error {
	pattern := t.pattern(l.store.config.pattern(l.prefix))
	for cursor := uint64(0); ; {
		bounded, cancel := context.WithTimeout(l.ctx, l.store.pageTimeout)
		keys, next, err := at.ScanType(bounded, cursor, pattern, scanCount, t.keyType).Result()
		cancel()
		if err != nil {
			err = fault.Classify(err)
			l.store.transport.Doubt(err)
			return err
		}
		if cursor = next; !l.page(at, l.choose(keys, t)) || cursor == 0 {
			return nil
		}
	}
}

// choose returns the keys of the wanted locks that may have left the traces.
func (l *lister) choose(traces []string, t *trace) (locks []key) {
	for _, trace := range traces {
		for _, at := range t.locks(key(trace)) {
			name, ok := l.store.config.name(at)
			if ok && strings.HasPrefix(name, l.prefix) && driver.ValidateName(name) == nil && l.wanted(name) {
				locks = append(locks, at)
			}
		}
	}
	return locks
}

// page lists the held locks among those at some keys. It reports whether to continue.
func (l *lister) page(at *redis.Client, locks []key) bool {
	for batch := range slices.Chunk(locks, detailBatch) {
		bounded, cancel := context.WithTimeout(l.ctx, l.store.pageTimeout)
		infos, err := l.inspect(bounded, batch)
		cancel()
		identifyClients(l.ctx, l.store, infos, &l.mute)
		for _, info := range infos {
			if !l.send(listed{info: *info}) {
				return false
			}
		}
		if err != nil && !l.send(listed{err: l.failure(at, err)}) {
			return false
		}
	}
	return true
}

// inspect reads locks in one pipeline. It returns the held ones, and the first error.
func (l *lister) inspect(ctx context.Context, locks []key) (infos []*driver.Info, failure error) {
	calls := make([]*transport.Call, len(locks))
	for i, at := range locks {
		calls[i] = l.store.format.inspect(request{store: l.store, at: at, publish: l.publish}, driver.KindMutex, false)
	}
	var refused []key // for the reason refusal
	var refusal error
	for i, reply := range l.store.transport.RunAll(ctx, calls) {
		err, failed := reply.(error)
		var info driver.Info
		if !failed {
			name, _ := l.store.config.name(locks[i])
			info, err = describe(name, reply)
		}
		switch {
		case keyRefused(err):
			refused, refusal = append(refused, locks[i]), err
		case err != nil && failure == nil:
			failure = err
		case err == nil && info.Held():
			infos = append(infos, &info)
		}
	}
	if failure == nil && !hidden(ctx, l.store.client, refused) {
		failure = refusal
	}
	return infos, failure
}

// keyRefused reports whether a server denies this user access to a key, as opposed to a
// command.
func keyRefused(err error) bool {
	refusal, _ := errors.AsType[*ServerError](err)
	return refusal != nil && errors.Is(refusal.Fault, ErrNoPermission) && strings.Contains(refusal.Err.Error(), " key")
}

// hidden reports whether this user may access none of the locks' keys. SCAN returns all
// keys, so one without access is no failure. It is a failure if the user may access a lock's
// key but not another one of the lock.
func hidden(ctx context.Context, client redis.UniversalClient, locks []key) bool {
	if len(locks) == 0 {
		return true
	}
	pipe := client.Pipeline()
	for _, at := range locks {
		pipe.Exists(ctx, string(at))
	}
	replies, _ := pipe.Exec(ctx) // each command has its own error
	for _, reply := range replies {
		if !keyRefused(fault.Classify(reply.Err())) {
			return false
		}
	}
	return true
}

// escapePattern returns the pattern that matches only text.
func escapePattern(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(text)
}
