package redisstore

import (
	"fmt"

	"github.com/leasewheel/leasewheel/lock"
)

// Format is how locks are kept on the server, so with which other clients they are
// shared. All clients of one lock must use one format: those of another one find
// the name taken, and fail with [lock.ErrForeign] or wait, as if somebody held it.
type Format uint8

const (
	// FormatRedisson is the format of Redisson, with every kind of lock. It is the
	// default.
	FormatRedisson Format = iota

	// FormatPlain is that of redsync, of redislock, and of all who take a lock by
	// SET with NX and PX: a string, which only the holder knows and compares before
	// it deletes or prolongs it. It has room for one owner, so only
	// [lock.Locker.Mutex] has locks in it. See "Plain locks" in the package's
	// documentation for what it promises.
	FormatPlain
)

func (f Format) String() string {
	switch f {
	case FormatRedisson:
		return "redisson"
	case FormatPlain:
		return "plain"
	}
	return "unknown"
}

// ParseFormat returns the format with this name, as String gives it.
func ParseFormat(name string) (Format, error) {
	for _, f := range []Format{FormatRedisson, FormatPlain} {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("redisstore: there is no format %q; accepted are %v and %v", name, FormatRedisson, FormatPlain)
}

// plainKinds are those that a string can keep.
var plainKinds = map[lock.Kind]kind{lock.KindMutex: plainMutex{}}

// kindOf returns how a kind of lock is kept in the store's format.
func (s *Store) kindOf(k lock.Kind) (kind, error) {
	kept, known := kinds[k]
	switch {
	case !known:
		return nil, fmt.Errorf("%w: %v: %w", lock.ErrUnsupported, k, lock.ErrNotDone)
	case s.config.Format == FormatRedisson:
		return kept, nil
	}
	if kept, ok := plainKinds[k]; ok {
		return kept, nil
	}
	return nil, fmt.Errorf("%w: a %v is more than a plain string can hold; keep it in the format %v, under a name of its own: %w", lock.ErrUnsupported, k, FormatRedisson, lock.ErrNotDone)
}
