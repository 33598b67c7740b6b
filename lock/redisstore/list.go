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
	// names returns the locks that may have the key.
	names func(key string) []string
}

// traces returns the traces of the locks of the store's format.
func (s *Store) traces() []trace {
	itself := trace{
		keyType: "hash",
		pattern: func(prefix string) string { return escapePattern(prefix) + "*" },
		names:   func(key string) []string { return []string{key} },
	}
	if s.config.Format == FormatPlain {
		itself.keyType = "string"
		return []trace{itself}
	}
	return []trace{itself, {
		keyType: "zset",
		pattern: func(string) string { return "*" + permitsSuffix },
		names:   permitsNames,
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
func (l *lister) choose(traces []string, t trace) (keys []string) {
	for _, trace := range traces {
		for _, key := range t.names(trace) {
			name, ok := l.store.names.name(key)
			if ok && strings.HasPrefix(name, l.prefix) && lock.ValidateName(name) == nil && l.wanted(name) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// first reports whether name was not returned before.
func (l *lister) first(name string) bool {
	sum := maphash.String(l.seed, name)
	_, seen := l.seen[sum]
	l.seen[sum] = struct{}{}
	return !seen
}

// page yields the locks among names. It reports whether to continue.
func (l *lister) page(ctx context.Context, names []string) bool {
	for len(names) > 0 {
		batch := names[:min(len(names), detailBatch)]
		names = names[len(batch):]
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
func (s *Store) inspectAll(ctx context.Context, names []string, publish string) (infos []*driver.Info, failure error) {
	calls := make([]*call, len(names))
	for i, name := range names {
		if s.config.Format == FormatPlain {
			calls[i] = plainCall(name, "", true)
		} else {
			calls[i] = s.inspectCall(name, driver.KindMutex, publish, false)
		}
	}
	var refused []string // for the reason refusal
	var refusal error
	for i, reply := range s.runAll(ctx, calls) {
		err, failed := reply.(error)
		var info driver.Info
		if !failed {
			info, err = describe(names[i], reply)
			info.Name, _ = s.names.name(names[i])
		}
		switch {
		case keyRefused(err):
			refused, refusal = append(refused, names[i]), err
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

// hidden reports whether this user may access none of the names. SCAN returns all names,
// so a name without access is no failure. It is a failure if the user may access the name
// but not another key of the lock.
func (s *Store) hidden(ctx context.Context, names []string) bool {
	if len(names) == 0 {
		return true
	}
	pipe := s.client.Pipeline()
	for _, name := range names {
		pipe.Exists(ctx, name)
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
