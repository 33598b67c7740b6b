package redisstore

import "strings"

// derive returns the key, or channel, that belongs to name under Redisson's
// scheme: "prefix:{name}", or "prefix:name" for a name that brings a hash tag.
func derive(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// deriveEach stores what derive returns for each prefix, in one allocation for all: each
// request for a lock has several.
func deriveEach(name string, prefixes, derived []string) {
	before, after := ":{", "}"
	if strings.Contains(name, "{") {
		before, after = ":", ""
	}
	size := len(prefixes) * (len(before) + len(name) + len(after))
	for _, p := range prefixes {
		size += len(p)
	}
	var all strings.Builder
	all.Grow(size)
	for i, p := range prefixes {
		start := all.Len()
		all.WriteString(p)
		all.WriteString(before)
		all.WriteString(name)
		all.WriteString(after)
		derived[i] = all.String()[start:]
	}
}

func channelKey(name string) string { return derive(channelPrefix, name) }

func tokenKey(name string) string { return derive(tokenPrefix, name) }

// The rights of users name each prefix: see cmd/leasewheel/acl_rights.go.
const (
	channelPrefix   = "redisson_lock__channel"
	tokenPrefix     = "redisson_lock_token" //nolint:gosec // no credential
	waitQueuePrefix = "leasewheel_lock_line"
	yieldPrefix     = "leasewheel_lock_turns"
)

func clientKey(id string) string { return derive("leasewheel:client", id) }
