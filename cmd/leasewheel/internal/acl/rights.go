package acl

import (
	"slices"
	"strings"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Use is a use of the servers. SECURITY.md has the rules of each, which a test compares, and
// other tests run each use with these rules alone.
type Use struct {
	redisstore.Use
	// Apart marks a use without the rights of locks.
	Apart bool
	// setting marks a use that only adds to others, and does not decide what they are.
	setting bool
}

// Uses returns the uses in the order of SECURITY.md, of locks and queues whose names match
// pattern.
func Uses(pattern string) (uses []Use) {
	for _, u := range redisstore.Uses(pattern) {
		uses = append(uses, Use{Use: u})
	}
	// Package redisreplies has the scripts, and net/http, which would be 2 MB more of this binary.
	uses = append(uses, Use{Use: redisstore.Use{
		Flag: "replies", Name: "stored replies of package redisreplies, and their locks: idempotency:*",
		Keys: []string{"leasewheel_reply:" + pattern}, Commands: []string{"hmget", "hset", "pexpire", "time"},
	}})
	uses[0].Name += " (default, if no other use is named)"
	queue := Use{Use: delayqueue.Use(pattern), Apart: true}
	for _, u := range []*Use{&uses[0], &queue} {
		u.Commands = append(u.Commands, "hello", "ping", "eval", "evalsha", "subscribe", "unsubscribe")
	}
	setting := func(flag, name, commands string) {
		uses = append(uses, Use{Use: redisstore.Use{Flag: flag, Name: name, Commands: strings.Fields(commands)}, setting: true})
	}
	setting("replicas", "grants that wait for replicas", "wait")
	setting("doctor", "all that leasewheel doctor can examine", "info config|get slowlog|get")
	setting("quorum", "on each server of a quorum: its identity, so that no server is named twice", "info")
	setting("cluster", "on each node of a cluster", "command cluster|slots asking pubsub|shardnumsub ssubscribe sunsubscribe spublish")
	uses = append(uses, queue, Use{Use: redisstore.Use{
		Flag: "sentinel", Name: "print the user of the sentinels themselves; their servers need nothing more",
		Channels: []string{"+switch-master", "+replica-reconf-done"},
		Commands: strings.Fields("hello ping subscribe unsubscribe sentinel|get-master-addr-by-name sentinel|sentinels"),
	}, Apart: true})
	for _, u := range uses {
		for _, list := range [][]string{u.Keys, u.Channels} {
			for i := range list {
				if pattern == "*" { // also names with braces of their own
					list[i] = strings.Replace(list[i], "{*}", "*", 1)
				}
			}
		}
	}
	return uses
}

// Base are the rules that come before those of the uses: no others remain.
const Base = "resetkeys resetchannels -@all"

// UsesOf returns the uses that wanted reports, with those that they build on.
func UsesOf(pattern string, wanted func(flag string) bool) []Use {
	uses := Uses(pattern)
	locks, apart := false, false
	for _, u := range uses {
		if wanted(u.Flag) {
			locks, apart = locks || !u.Apart && !u.setting, apart || u.Apart
		}
	}
	locks = locks || !apart
	return slices.DeleteFunc(uses, func(u Use) bool {
		builtOn := u.Flag == "locks" && locks || u.Flag == "inspect" && wanted("force")
		return !builtOn && !wanted(u.Flag)
	})
}

// RulesOf returns the rules of uses: keys, channels, commands, each once.
func RulesOf(uses []Use) []string {
	var all redisstore.Use
	for _, u := range uses {
		all.Keys, all.Channels, all.Commands = append(all.Keys, u.Keys...), append(all.Channels, u.Channels...), append(all.Commands, u.Commands...)
	}
	if slices.Contains(all.Keys, "*") {
		all.Keys = []string{"*"} // Redis refuses others beside it
	}
	slices.Sort(all.Commands)
	rules := strings.Fields(Base)
	for i, texts := range [][]string{all.Keys, all.Channels, all.Commands} {
		for _, text := range texts {
			if rule := "~&+"[i:i+1] + text; !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}
