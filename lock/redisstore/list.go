package redisstore

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

const (
	// scanCount is how many keys a server examines for one page: about 0.3 ms of its
	// time.
	scanCount = 1000
	// detailBatch is how many locks are read in one pipeline.
	detailBatch = 200
	// pageTimeout bounds each request of a list.
	pageTimeout = 5 * time.Second
)

// List reads the names of every master's hashes with SCAN, page by page, and then the
// locks among them. It reads semaphores' permits in use in the same way. It omits names
// that package lock refuses, which no lock of ours has, and keys that the user may not
// access.
func (s *Store) List(ctx context.Context, prefix string, wanted func(name string) bool) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		l := lister{
			store: s, prefix: prefix, wanted: wanted, yield: yield,
			seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}),
		}
		var servers []scanner
		publish, err := s.publishing(ctx)
		if err == nil {
			l.publish = publish
			servers, err = s.servers(ctx)
		}
		if err != nil {
			yield(driver.Info{}, classify(err))
			return
		}
		for _, server := range servers {
			for _, t := range s.traces() {
				if !l.server(ctx, server, t) {
					return
				}
			}
		}
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

// traces returns the traces of the locks of the store's format.
func (s *Store) traces() []trace {
	itself := trace{
		keyType: "hash",
		pattern: func(prefix string) string { return escapePattern(prefix) + "*" },
		locks:   func(trace key) []key { return []key{trace} },
	}
	if s.config.Format == FormatPlain {
		itself.keyType = "string"
		return []trace{itself}
	}
	return []trace{itself, {
		keyType: "zset",
		pattern: func(string) string { return "*" + permitsSuffix },
		locks:   permitsLocks,
	}}
}

// servers returns the masters that keep the locks.
func (s *Store) servers(ctx context.Context) ([]scanner, error) {
	if s.cluster == nil {
		return []scanner{s.client}, nil
	}
	masters, err := s.masters(ctx)
	scanners := make([]scanner, len(masters))
	for i, master := range masters {
		scanners[i] = master
	}
	return scanners, err
}

// scanner lists a server's keys.
type scanner interface {
	ScanType(ctx context.Context, cursor uint64, match string, count int64, keyType string) *redis.ScanCmd
}

// lister is one run of a list.
type lister struct {
	store   *Store
	publish string // see Store.publishing
	prefix  string
	wanted  func(name string) bool
	yield   func(driver.Info, error) bool

	// seen has the names that were returned. SCAN may return a key twice, and while its
	// slot moves, two servers may return it.
	seed maphash.Seed
	seen map[uint64]struct{}
}

// server lists one server's locks that leave a trace. It reports whether to continue.
func (l *lister) server(ctx context.Context, server scanner, t trace) bool {
	pattern := t.pattern(l.store.names.pattern(l.prefix))
	for cursor := uint64(0); ; {
		bounded, cancel := context.WithTimeout(ctx, pageTimeout)
		keys, next, err := server.ScanType(bounded, cursor, pattern, scanCount, t.keyType).Result()
		cancel()
		if err != nil {
			err = classify(err)
			l.store.doubtTopology(err)
			return l.yield(driver.Info{}, err) && ctx.Err() == nil
		}
		if !l.page(ctx, l.choose(keys, t)) {
			return false
		}
		if cursor = next; cursor == 0 {
			return true
		}
	}
}

// choose returns the keys of the wanted locks that may have left the traces.
func (l *lister) choose(traces []string, t trace) (locks []key) {
	for _, trace := range traces {
		for _, at := range t.locks(key(trace)) {
			name, ok := l.store.names.name(at)
			if ok && strings.HasPrefix(name, l.prefix) && lock.ValidateName(name) == nil && l.wanted(name) {
				locks = append(locks, at)
			}
		}
	}
	return locks
}

// first reports whether name was not returned before.
func (l *lister) first(name string) bool {
	sum := maphash.String(l.seed, name)
	_, seen := l.seen[sum]
	l.seen[sum] = struct{}{}
	return !seen
}

// page yields the held locks among those at some keys. It reports whether to continue.
func (l *lister) page(ctx context.Context, locks []key) bool {
	for len(locks) > 0 {
		batch := locks[:min(len(locks), detailBatch)]
		locks = locks[len(batch):]
		bounded, cancel := context.WithTimeout(ctx, pageTimeout)
		infos, err := l.store.inspectAll(bounded, batch, l.publish)
		cancel()
		for _, info := range infos {
			if l.first(info.Name) && !l.yield(*info, nil) {
				return false
			}
		}
		if err != nil && (!l.yield(driver.Info{}, err) || ctx.Err() != nil) {
			return false
		}
	}
	return true
}

// inspectAll reads locks in one pipeline, and their clients in another. It returns the
// held ones, and the first error.
func (s *Store) inspectAll(ctx context.Context, locks []key, publish string) (infos []*driver.Info, failure error) {
	calls := make([]*call, len(locks))
	for i, at := range locks {
		if s.config.Format == FormatPlain {
			calls[i] = plainCall(at, "", true)
		} else {
			calls[i] = s.inspectCall(at, driver.KindMutex, publish, false)
		}
	}
	var refused []key // for the reason refusal
	var refusal error
	for i, reply := range s.runAll(ctx, calls) {
		err, failed := reply.(error)
		var info driver.Info
		if !failed {
			name, _ := s.names.name(locks[i])
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
	if failure == nil && !s.hidden(ctx, refused) {
		failure = refusal
	}
	s.identifyClients(ctx, infos)
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
func (s *Store) hidden(ctx context.Context, locks []key) bool {
	if len(locks) == 0 {
		return true
	}
	pipe := s.client.Pipeline()
	for _, at := range locks {
		pipe.Exists(ctx, string(at))
	}
	replies, _ := pipe.Exec(ctx) // each command has its own error
	for _, reply := range replies {
		if !keyRefused(classify(reply.Err())) {
			return false
		}
	}
	return true
}

// escapePattern returns the pattern that matches only text.
func escapePattern(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(text)
}
