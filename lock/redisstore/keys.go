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

func channelKey(name string) string { return derive("redisson_lock__channel", name) }

func tokenKey(name string) string { return derive("redisson_lock_token", name) }

func clientKey(id string) string { return derive("leasewheel:client", id) }
