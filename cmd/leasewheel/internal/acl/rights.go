package acl

import (
	"slices"
	"strings"
)

// ExamplePattern is the pattern of lock names in the lists of rights. rights replaces it.
const ExamplePattern = "orders:*"

// Use is a use of the servers with the ACL rules that it needs. SECURITY.md has the
// same texts, which a test compares, and other tests run each use with these rules alone.
type Use struct {
	Flag, usage string
	// apart marks a use without the rights of locks.
	Apart bool
	// setting marks a use that only adds to others, and does not decide what they are.
	setting bool
	Rules   string
}

// Uses are the uses in the order of SECURITY.md.
var Uses = []Use{
	{
		Flag: "locks", usage: "mutexes, with renewal, waiting and fencing tokens (default, if no other use is named)",
		Rules: `
  ~orders:* ~redisson_lock_token:{orders:*} ~leasewheel_lock_line:{orders:*}
  ~leasewheel_lock_turns:{orders:*} ~leasewheel:client:{*}
  ~redisson_lock__channel:{orders:*} ~leasewheel_lock__channel:{orders:*}
  &redisson_lock__channel:{orders:*} &leasewheel_lock__channel:{orders:*}
  &leasewheel_lock__channel:{orders:*}:????????-????-????-????-????????????
  +hello +ping +eval +evalsha +subscribe +unsubscribe
  +hget +hset +hdel +hexists +hrandfield +get +set +exists +pexpire +pttl +time +publish
  +persist +zadd +zpopmin +zrem +zscore +pubsub|numsub`,
	},
	{
		Flag: "fair", usage: "fair locks",
		Rules: `
  ~redisson_lock_queue:{orders:*} ~redisson_lock_timeout:{orders:*}
  ~leasewheel_lock_places:{orders:*}
  &redisson_lock__channel:{orders:*}:????????-????-????-????-????????????:*
  +lindex +llen +lpop +lpos +lpush +lrem +rpush +unlink
  +zadd +zcount +zmscore +zrange +zrangebyscore +zrem +zremrangebyrank +zscore`,
	},
	{
		Flag: "read-write", usage: "read-write locks",
		Rules: `
  ~{orders:*}:????????-????-????-????-????????????:*:rwlock_timeout*
  ~leasewheel_lock_claim:{orders:*}
  ~redisson_rwlock:{orders:*} &redisson_rwlock:{orders:*}
  +del +hlen +type +unlink`,
	},
	{
		Flag: "semaphore", usage: "semaphores, also those whose permits expire, and latches",
		Rules: `
  ~{orders:*}:timeout
  ~leasewheel_request:{orders:*}:????????-????-????-????-????????????:*
  ~redisson_sc:{orders:*} ~redisson_countdownlatch__channel__{orders:*}
  &redisson_sc:{orders:*} &redisson_countdownlatch__channel__{orders:*}
  +type +del +getrange +incrby +decrby +unlink
  +zadd +zcount +zrange +zrem +zremrangebyrank +zscore`,
	},
	{
		Flag: "plain", usage: "locks as plain strings (--format plain)",
		Rules: `
  +del +getrange`,
	},
	{
		Flag: "inspect", usage: "leasewheel ls, watch and inspect, of locks of every kind",
		Rules: `
  ~redisson_lock_queue:{orders:*} ~redisson_lock_timeout:{orders:*}
  ~leasewheel_lock_places:{orders:*} ~leasewheel_lock_claim:{orders:*}
  ~{orders:*}:timeout ~{orders:*}:????????-????-????-????-????????????:*:rwlock_timeout*
  ~redisson_rwlock:{orders:*} &redisson_rwlock:{orders:*}
  +scan +hmget +hstrlen +type +hlen +hrandfield +lrange +llen +zscore
  +getrange +strlen +zrange +zcard +zcount +zrangebyscore`,
	},
	{
		Flag: "force", usage: "leasewheel unlock --force; with what --inspect has",
		Rules: `
  &redisson_lock__channel:{orders:*}:????????-????-????-????-????????????:*
  +del +lindex +lpop +unlink +zrem +zremrangebyrank`,
	},
	{
		Flag: "replicas", usage: "grants that wait for replicas", setting: true,
		Rules: `
  +wait`,
	},
	{
		Flag: "doctor", usage: "all that leasewheel doctor can examine", setting: true,
		Rules: `
  +info +config|get +slowlog|get`,
	},
	{
		Flag: "quorum", usage: "on each server of a quorum: its identity, so that no server is named twice", setting: true,
		Rules: `
  +info`,
	},
	{
		Flag: "cluster", usage: "on each node of a cluster", setting: true,
		Rules: `
  +command +cluster|slots +asking
  +pubsub|shardnumsub +ssubscribe +sunsubscribe +spublish`,
	},
	{
		Flag: "queue", usage: "delay queues, with or without locks", Apart: true,
		Rules: `
  ~leasewheel_queue_due:{orders:*} ~leasewheel_queue_leased:{orders:*}
  ~leasewheel_queue_dead:{orders:*} ~leasewheel_queue_payload:{orders:*}
  ~leasewheel_queue_record:{orders:*} ~leasewheel_queue_token:{orders:*}
  ~leasewheel_queue_claim:{orders:*}:??????????????????????????
  ~leasewheel_queue_channel:{orders:*} &leasewheel_queue_channel:{orders:*}
  +hello +ping +eval +evalsha +subscribe +unsubscribe
  +get +set +hget +hset +hdel +hlen +time +publish
  +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem +zscore`,
	},
	{
		Flag: "sentinel", usage: "print the user of the sentinels themselves; their servers need nothing more", Apart: true,
		Rules: `
  &+switch-master &+replica-reconf-done
  +hello +ping +subscribe +unsubscribe
  +sentinel|get-master-addr-by-name +sentinel|sentinels`,
	},
}

// Base are the rules that come before those of the uses: no others remain.
const Base = "resetkeys resetchannels -@all"

// UsesOf returns the uses that wanted reports, with those that they build on.
func UsesOf(wanted func(flag string) bool) []Use {
	locks, apart := false, false
	for _, u := range Uses {
		if wanted(u.Flag) {
			locks, apart = locks || !u.Apart && !u.setting, apart || u.Apart
		}
	}
	locks = locks || !apart
	return slices.DeleteFunc(slices.Clone(Uses), func(u Use) bool {
		builtOn := u.Flag == "locks" && locks || u.Flag == "inspect" && wanted("force")
		return !builtOn && !wanted(u.Flag)
	})
}

// RulesOf returns the rules of uses, on locks and queues whose names match pattern: keys,
// channels, commands, each once.
func RulesOf(uses []Use, pattern string) []string {
	var all []string
	for _, u := range uses {
		for rule := range strings.FieldsSeq(u.Rules) {
			all = append(all, onPattern(rule, pattern)...)
		}
	}
	rules := strings.Fields(Base)
	for _, kind := range []string{"~", "&", "+"} {
		if kind == "~" && pattern == "*" {
			rules = append(rules, "~*") // Redis refuses others after it
			continue
		}
		for _, rule := range all {
			if strings.HasPrefix(rule, kind) && !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// onPattern puts the pattern of names in the place of the example's. Derived keys have the
// name in braces, unless the name has braces. A latch has two channels then: Redisson's
// has the name in braces all the same, and that for clusters has not.
func onPattern(rule, pattern string) []string {
	on := func(inBraces string) string {
		return strings.NewReplacer("{"+ExamplePattern+"}", inBraces, ExamplePattern, pattern).Replace(rule)
	}
	switch braced := "{" + pattern + "}"; {
	case pattern == "*":
		return []string{on(pattern)}
	case !strings.Contains(pattern, "{"):
		return []string{on(braced)}
	case strings.Contains(rule, "latch"):
		return []string{on(braced), on(pattern)}
	}
	return []string{on(pattern)}
}
