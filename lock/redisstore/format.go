package redisstore

import (
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
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

// format is what a Format consists of.
type format struct {
	name  string
	kinds []*kind // by driver.Kind
	// inspect returns the call that describes a lock. named is set if the caller asked for it
	// by name, and as is the kind then: other programs have keys that look like locks, too.
	inspect func(r request, as driver.Kind, named bool) *transport.Call
	// force returns the call that frees a lock, and publishes the release as its kind does.
	force func(r request) *transport.Call
}

var formats = [...]format{
	FormatRedisson: {"redisson", kinds, inspectRedisson, forceRedisson},
	FormatPlain: {"plain", []*kind{&plainMutex}, func(r request, _ driver.Kind, named bool) *transport.Call {
		return plainCall(r.at, "", named)
	}, func(r request) *transport.Call { return plainCall(r.at, r.publish, true) }},
}

// kinds are the kinds of lock in Redisson's format.
var kinds = []*kind{
	driver.KindMutex: &mutex,
	driver.KindFair:  &fair,
	driver.KindRead:  &read,
	driver.KindWrite: &write,

	driver.KindSemaphore: &semaphore,
	driver.KindPermit:    &permit,
	driver.KindLatch:     &latch,
}

func (f Format) String() string {
	if int(f) < len(formats) {
		return formats[f].name
	}
	return "unknown"
}

// ParseFormat returns the format of this name, as String returns it.
func ParseFormat(name string) (Format, error) {
	for f := range Format(len(formats)) {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("redisstore: there is no format %q; accepted are %v and %v", name, FormatRedisson, FormatPlain)
}
