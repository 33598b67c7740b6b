package chaos

import (
	"strings"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Odd names: legal names, and names that might be mistaken for something else.
var oddNames = []string{
	"日本語:ロック", `"quoted" $(x) *?[a]`, "a:b:c", "%7Bx%7D", "0", "mode", "gap", "leasewheel", "{user:7}:cart",
	"{user:7}", "redisson_lock_token", strings.Repeat("n", 500),
}

// mapping maps names to keys, as the processes' stores do. The zero value is the identity.
type mapping struct{ Prefix, Suffix string }

func (m mapping) key(name string) string { return m.Prefix + name + m.Suffix }

// config returns the store's configuration: with its Prefix, or with functions if that is
// not the whole mapping.
func (m mapping) config() redisstore.Config {
	if m.Suffix == "" {
		return redisstore.Config{Prefix: m.Prefix}
	}
	return redisstore.Config{MapName: m.key, UnmapName: func(key string) (string, bool) {
		name, ours := strings.CutPrefix(key, m.Prefix)
		name, ends := strings.CutSuffix(name, m.Suffix)
		return name, ours && ends
	}}
}

// keysAt returns the keys that belong to a lock at a key, of every kind.
func keysAt(key string) []string {
	braces := "{" + key + "}"
	if strings.Contains(key, "{") {
		braces = key
	}
	keys := []string{key}
	for _, prefix := range []string{
		"redisson_lock_token", "leasewheel_lock_line", "redisson_lock_queue", "redisson_lock_timeout", "leasewheel_lock_places",
		"leasewheel_lock_claim", "leasewheel_lock_turns",
	} {
		keys = append(keys, prefix+":"+braces)
	}
	return append(keys, braces+":timeout", braces+":permits", "redisson_lock_token_permit:"+braces)
}
