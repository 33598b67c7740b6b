package redisstore

import (
	"strings"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// key is a key on the server, or a channel. A cluster has a node for each. The key of a lock
// is made from the lock's name by [Config.key], once, and the others are derived from it. A
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

// requestKey is the key of a request's remembered outcome.
func requestKey(at key, request string) key {
	return derive("leasewheel_request", at) + ":" + key(request)
}

// newCall returns the call of a script.
func newCall(sc *transport.Script, keys []key, args ...any) *transport.Call {
	c := &transport.Call{Script: sc, Keys: make([]any, len(keys)), Args: args}
	for i := range keys {
		c.Keys[i] = (*string)(&keys[i])
	}
	return c
}
