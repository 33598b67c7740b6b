package redisstore

import "strings"

// key is a key on the server, or a channel. A cluster has a node for each. The key of a lock
// is made from the lock's name by [mapping.key], once, and the others are derived from it. A
// name is a string, so that no key is taken for a name and mapped again.
type key string

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

// The rights of users name each prefix: see cmd/leasewheel/internal/acl/rights.go.
const (
	channelPrefix   = "redisson_lock__channel"
	tokenPrefix     = "redisson_lock_token" //nolint:gosec // no credential
	waitQueuePrefix = "leasewheel_lock_line"
	yieldPrefix     = "leasewheel_lock_turns"
)

// clientKey is the key of the record of a client.
func clientKey(id string) key { return derive("leasewheel:client", key(id)) }
