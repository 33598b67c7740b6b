package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// key is a key on the server, or a channel. A cluster has a node for each. The key of a lock
// is made from the lock's name by [mapping.key], once, and the others are derived from it. A
// name is a string, so that no key is taken for a name and mapped again.
type key string

// mapping maps names of locks to keys, like Redisson's NameMapper. The zero value is the
// identity.
type mapping struct {
	prefix string
	mapTo  func(name string) string
	back   func(key string) (name string, ok bool)
}

// errMapping is the error of a configuration with two mappings of names, or half of one.
var errMapping = errors.New("redisstore: set either Prefix, or MapName and UnmapName together")

// mapping returns the configuration's name mapping.
func (c *Config) mapping() (mapping, error) {
	switch {
	case (c.MapName == nil) != (c.UnmapName == nil), c.Prefix != "" && c.MapName != nil:
		return mapping{}, errMapping
	case c.MapName != nil:
		return mapping{mapTo: c.MapName, back: c.UnmapName}, nil
	case c.Prefix != "":
		prefix := c.Prefix
		return mapping{
			prefix: prefix,
			mapTo:  func(name string) string { return prefix + name },
			back:   func(key string) (string, bool) { return strings.CutPrefix(key, prefix) },
		}, nil
	}
	return mapping{}, nil
}

// key returns the key of the lock called name. It refuses a key that is no valid name.
func (m *mapping) key(name string) (key, error) {
	if m.mapTo == nil {
		return key(name), nil
	}
	mapped := m.mapTo(name)
	if err := driver.ValidateName(mapped); err != nil {
		return "", fmt.Errorf("redisstore: the name %q is mapped to an invalid key: %w: %w", name, err, driver.ErrNotDone)
	}
	return key(mapped), nil
}

// name returns the name of the lock at the key; ok is false if there is none.
func (m *mapping) name(at key) (name string, ok bool) {
	if m.back == nil {
		return string(at), true
	}
	return m.back(string(at))
}

// pattern returns the prefix of the keys of all locks whose names begin with prefix.
func (m *mapping) pattern(prefix string) string {
	if m.mapTo != nil && m.prefix == "" {
		return "" // any key may match
	}
	return m.prefix + prefix
}

// derive returns the key, or channel, that belongs to the lock at a key under Redisson's
// scheme: "prefix:{key}", or "prefix:key" for a key that brings a hash tag.
func derive(prefix string, at key) key {
	if tagged(at) {
		return key(prefix + ":" + string(at))
	}
	return key(prefix + ":{" + string(at) + "}")
}

// tagged reports whether a lock's key has a hash tag of its own: keys with other braces are
// no valid names.
func tagged(at key) bool { return strings.Contains(string(at), "{") }

// deriveEach stores what derive returns for each prefix, in one allocation for all: each
// request for a lock has several.
func deriveEach(at key, prefixes []string, derived []key) {
	before, after := ":{", "}"
	if tagged(at) {
		before, after = ":", ""
	}
	size := len(prefixes) * (len(before) + len(at) + len(after))
	for _, p := range prefixes {
		size += len(p)
	}
	var all strings.Builder
	all.Grow(size)
	for i, p := range prefixes {
		start := all.Len()
		all.WriteString(p)
		all.WriteString(before)
		all.WriteString(string(at))
		all.WriteString(after)
		derived[i] = key(all.String()[start:])
	}
}

func channelKey(at key) key { return derive(channelPrefix, at) }

func tokenKey(at key) key { return derive(tokenPrefix, at) }

func waitQueueKey(at key) key { return derive(waitQueuePrefix, at) }

// yieldKey is the key of the yield state: whether a free lock goes to leasewheel's
// clients, which are notified of releases, or is left to their peers, which poll.
func yieldKey(at key) key { return derive(yieldPrefix, at) }

// waitChannel is the channel to which all waiting clients of leasewheel subscribe. With
// ":" and a client's id it is the channel of that client's grants.
func waitChannel(at key) key { return derive("leasewheel_lock__channel", at) }

const (
	channelPrefix   = "redisson_lock__channel"
	tokenPrefix     = "redisson_lock_token" //nolint:gosec // no credential
	waitQueuePrefix = "leasewheel_lock_line"
	yieldPrefix     = "leasewheel_lock_turns"
)

// clientKey is the key of the record of a client.
func clientKey(id string) key { return derive("leasewheel:client", key(id)) }
