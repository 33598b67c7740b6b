//go:build linux

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

// drawNames draws the names of a round: families that share a prefix and differ in
// braces, and odd ones.
func drawNames(d dice, at site) []namePlan {
	kinds := []kind{mutexKind, mutexKind, fairKind, writeKind, permitsKind, semaphoreKind, latchKind}
	if at == five {
		kinds = []kind{mutexKind}
	}
	seen := map[string]bool{}
	var names []namePlan
	add := func(name string, k kind, victim bool) {
		if !seen[name] {
			seen[name] = true
			names = append(names, namePlan{Name: name, Kind: k, Count: int64(d.IntN(4)), Victim: victim})
		}
	}
	base := pick(d, []string{"orders", "a", "job:1"})
	twins := pick(d, []kind{mutexKind, mutexKind, permitsKind, fairKind})
	if at == five {
		twins = mutexKind
	}
	add(base, twins, false)
	if d.chance(50) {
		add("{"+base+"}", twins, false)
	}
	add(base+"2", pick(d, kinds), false)
	for _, k := range kinds {
		if d.chance(70) {
			add(base+":"+string(k), k, false)
		}
	}
	add(pick(d, oddNames), pick(d, kinds), false)
	for _, name := range []string{"lonely 1", "lonely 2"} {
		add(name, pick(d, kinds), false)
		names[len(names)-1].Role = lonely
	}
	if at != five {
		add(base+":permits", permitsKind, false)
		add("victim", pick(d, []kind{mutexKind, mutexKind, fairKind, writeKind, writeKind, permitsKind}), true)
	}
	return names
}
