package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// ForeignError reports that a lock's name is in use by a key that is not a lock. Unlike a
// holder, such a key does not go away. Waiting for it, or treating it as a holder, would
// hide that the command never runs.
type ForeignError struct {
	name  string
	what  string // the key, in words
	cause error
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("lock %s: the key of this name is %s, not a lock: choose another name, or delete the key if nothing needs it", output.Quoted(e.name), e.what)
}

func (e *ForeignError) Unwrap() error { return e.cause }

// Foreign returns a *ForeignError if err reports that a name is in use, by a key that is
// not a lock of either format. Otherwise it returns err. A holder in this format whose
// lease has an end is not examined.
func (n Servers) Foreign(ctx context.Context, name string, err error) error {
	taken, refused := errors.AsType[*lock.NotAcquiredError](err)
	suspect := refused && (taken.Foreign || taken.TTL <= 0)
	if !suspect && !errors.Is(err, redisstore.ErrWrongType) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	known := refused && taken.Foreign
	for _, server := range n {
		switch key := server.identify(ctx, name); {
		case key.isLock:
			return err
		case key.what != "" && (key.sure || known):
			return &ForeignError{name, key.what, err}
		}
	}
	if !known {
		return err
	}
	return &ForeignError{name, "of a type that this user may not query (+type allows it)", err}
}

// foreignKey describes a key that may not be a lock.
type foreignKey struct {
	what   string // in words; empty: there is no key, or its type is unknown
	isLock bool
	sure   bool // it is certainly not a lock
}

// identify returns what kind of key a lock's name has. A string is a lock if it has a TTL, as
// every lock of redsync and redislock has.
func (s *Server) identify(ctx context.Context, name string) foreignKey {
	if s.Client == nil {
		return s.identifyNumber(ctx, name)
	}
	kind := s.typeOf(ctx, s.prefix+name)
	switch kind {
	case "", "none":
		return foreignKey{}
	case "string":
		ttl, err := s.Client.PTTL(ctx, s.prefix+name).Result()
		if err == nil && ttl > 0 {
			return foreignKey{isLock: true}
		}
		return foreignKey{what: "a string without a TTL", sure: err == nil}
	case "hash":
		info, err := s.inspectHash(ctx, name)
		return foreignKey{what: "a hash", isLock: info.Held(), sure: err == nil}
	case typeUnlikeString:
		return foreignKey{what: kind}
	}
	return foreignKey{what: "a " + kind, sure: true}
}

// identifyNumber is identify in files and other engines, where a number is all that is not a lock.
func (s *Server) identifyNumber(ctx context.Context, name string) foreignKey {
	if store, ok := s.Locks().(driver.Inspector); ok {
		if info, err := store.Inspect(ctx, name, driver.KindMutex); err == nil && info.Counted {
			return foreignKey{what: "the number of a semaphore or a latch", sure: true}
		}
	}
	return foreignKey{isLock: true}
}

// inspectHash inspects a lock in Redisson's format.
func (s *Server) inspectHash(ctx context.Context, name string) (driver.Info, error) {
	store, err := redisstore.New(s.Client, redisstore.Config{Format: redisstore.FormatRedisson, Prefix: s.prefix})
	if err != nil {
		return driver.Info{}, err
	}
	defer store.Close()
	return store.Inspect(ctx, name, driver.KindMutex)
}

// typeUnlikeString describes a key's type if only GET is allowed.
const typeUnlikeString = "a value other than a string"

// typeOf returns the type of a key, as far as this user may query it. The rights of a
// mutex's user include GET, but not TYPE.
func (s *Server) typeOf(ctx context.Context, name string) string {
	if kind, err := s.Client.Type(ctx, name).Result(); err == nil {
		return kind
	}
	err := s.Client.Get(ctx, name).Err()
	switch {
	case err == nil:
		return "string"
	case errors.Is(err, redis.Nil):
		return "none"
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return typeUnlikeString
	}
	return ""
}
