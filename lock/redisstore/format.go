package redisstore

import (
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Format is how locks are stored on the server, and so which other clients share them.
// All clients of one lock must use one format. To clients of another format the name is
// taken: they fail with [driver.ErrForeign], or wait as if the lock were held.
type Format uint8

const (
	// FormatRedisson is the format of Redisson, with every kind of lock. It is the
	// default.
	FormatRedisson Format = iota

	// FormatPlain is the format of redsync, of redislock, and of all clients that take a
	// lock by SET with NX and PX. The key's value is a string that only the holder knows,
	// and compares before it deletes or prolongs the key. It has room for one owner, so
	// only [lock.Locker.Mutex] supports it. See "Plain locks" in the package
	// documentation for its promises.
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

// ParseFormat returns the format of this name, as String returns it.
func ParseFormat(name string) (Format, error) {
	for _, f := range []Format{FormatRedisson, FormatPlain} {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("redisstore: there is no format %q; accepted are %v and %v", name, FormatRedisson, FormatPlain)
}

// plainKinds are the kinds of lock in FormatPlain.
var plainKinds = map[driver.Kind]kind{driver.KindMutex: plainMutex{}}

// kindOf returns the implementation of a kind of lock in the store's format.
func (s *Store) kindOf(k driver.Kind) (kind, error) {
	kept, known := kinds[k]
	switch {
	case !known:
		return nil, fmt.Errorf("%w: %v: %w", driver.ErrUnsupported, k, driver.ErrNotDone)
	case s.config.Format == FormatRedisson:
		return kept, nil
	}
	if kept, ok := plainKinds[k]; ok {
		return kept, nil
	}
	return nil, fmt.Errorf("%w: no %v in a plain string; use the format %v, under another name: %w", driver.ErrUnsupported, k, FormatRedisson, driver.ErrNotDone)
}
