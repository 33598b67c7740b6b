//go:build unix

package acl

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// keysOfUse lists the keys ("~") and channels ("&") of a name, by the use that has them. N
// is the name, B the name in braces unless it has braces, O an owner, C a client and R a
// claim.
var keysOfUse = map[string]string{
	"locks": `
  ~N ~redisson_lock_token:B ~leasewheel_lock_line:B ~leasewheel_lock_turns:B ~leasewheel:client:{C}
  ~redisson_lock__channel:B ~leasewheel_lock__channel:B
  &redisson_lock__channel:B &leasewheel_lock__channel:B &leasewheel_lock__channel:B:C`,
	"fair": `
  ~redisson_lock_queue:B ~redisson_lock_timeout:B ~leasewheel_lock_places:B &redisson_lock__channel:B:O`,
	"read-write": `
  ~B:O:rwlock_timeout ~B:O:rwlock_timeout:1 ~leasewheel_lock_claim:B ~redisson_rwlock:B &redisson_rwlock:B`,
	"semaphore": `
  ~B:timeout ~leasewheel_request:B:O ~redisson_sc:B ~redisson_countdownlatch__channel__B ~redisson_countdownlatch__channel__{N}
  &redisson_sc:B &redisson_countdownlatch__channel__B &redisson_countdownlatch__channel__{N}`,
	"plain": ``,
	"inspect": `
  ~redisson_lock_queue:B ~redisson_lock_timeout:B ~leasewheel_lock_places:B ~leasewheel_lock_claim:B
  ~B:timeout ~B:O:rwlock_timeout ~B:O:rwlock_timeout:1 ~redisson_rwlock:B &redisson_rwlock:B`,
	"force": `
  &redisson_lock__channel:B:O`,
	"queue": `
  ~leasewheel_queue_due:B ~leasewheel_queue_leased:B ~leasewheel_queue_dead:B ~leasewheel_queue_payload:B
  ~leasewheel_queue_record:B ~leasewheel_queue_token:B ~leasewheel_queue_claim:B:R
  ~leasewheel_queue_channel:B &leasewheel_queue_channel:B`,
	// What no use has: keys of other programs, and of Redisson's other objects.
	"": `
  ~B:basket ~{N}:basket ~redisson_map:B ~leasewheel_lock_other:B ~leasewheel_queue_other:B
  ~leasewheel:client:C ~leasewheel_queue_claim:B:other ~leasewheel_request:B:other
  &B &redisson_map:B &leasewheel_lock__channel:B:other &redisson_lock__channel:B:other`,
}

// keysOf returns the keys and channels of a use of a name.
func keysOf(use, name string) []string {
	braced := name
	if !strings.Contains(name, "{") {
		braced = "{" + name + "}"
	}
	const client = "c0ffee00-0000-4000-8000-000000000001"
	return strings.Fields(strings.NewReplacer(
		":B", ":"+braced, "__B", "__"+braced, "~B", "~"+braced, "&B", "&"+braced,
		":{C}", ":{"+client+"}", ":C", ":"+client, ":O", ":"+client+":1", ":R", ":ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"~N", "~"+name, "{N}", "{"+name+"}",
	).Replace(keysOfUse[use]))
}

// The printed rights reach the keys and channels of the pattern's names that the use has,
// and none of those that only look alike: of names with the pattern in another place, of
// other kinds, of other queues, of other programs. Each printed rule is one of them.
func TestACLReachesNothingElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	// may returns those of the keys and channels that a user with the rules may use.
	may := func(t *testing.T, rules []string, all []string) (allowed []string) {
		words := []any{"acl", "setuser", "probe", "reset", "on", "+get", "+publish"}
		for _, rule := range rules {
			words = append(words, rule)
		}
		require.NoError(t, admin.Do(t.Context(), words...).Err())
		pipe := admin.Pipeline()
		var answers []*redis.Cmd
		for _, key := range all {
			if key[0] == '~' {
				answers = append(answers, pipe.Do(t.Context(), "acl", "dryrun", "probe", "get", key[1:]))
				continue
			}
			answers = append(answers, pipe.Do(t.Context(), "acl", "dryrun", "probe", "publish", key[1:], "x"))
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for i, key := range all {
			if answers[i].Val() == "OK" {
				allowed = append(allowed, key)
			}
		}
		return allowed
	}
	for _, c := range []struct {
		prefix, pattern string
		names, others   []string // names that match, and names that only look alike
	}{
		{"", "orders:*", []string{"orders:42", "orders:a:b"}, []string{
			"order:42", "xorders:42", "payments:orders:42", "cart:{orders:42}", "refunds:{orders:42}",
			"{orders:42}:cart", "{orders:42}:cart:1", "{orders}:42", "{x}orders:42", "redisson:{orders:42}", "x:timeout",
		}},
		{"", "user:*", []string{"user:7"}, []string{"cart:{user:7}", "{user:7}:cart", "{user:7}:cart:user:7"}},
		{"", "orders:42", []string{"orders:42"}, []string{"orders:421", "orders:4", "xorders:42", "cart:{orders:42}", "{orders:42}:cart"}},
		{"", "{user:7}:cart", []string{"{user:7}:cart"}, []string{"{user:7}:cart2", "user:7", "a{user:7}:cart", "{user:7}:cart:{x}", "{user:8}:cart"}},
		{"", "o?ders:[0-9]", []string{"orders:4"}, []string{"orders:42", "orders:x", "cart:{orders:4}", "{orders:4}:cart"}},
		{"shop:", "*", []string{"42"}, []string{"42", "shop", "cart:{shop:42}", "{shop:42}:cart", "xshop:42"}},
	} {
		for _, u := range Uses("") {
			if _, has := keysOfUse[u.Flag]; !has {
				continue // a setting without keys, or the user of sentinels
			}
			t.Run(c.prefix+c.pattern+" "+u.Flag, func(t *testing.T) {
				uses := UsesOf(connect.GlobLiteral(c.prefix)+c.pattern, func(flag string) bool { return flag == u.Flag })
				var own, all []string
				for _, use := range uses {
					for _, name := range c.names {
						own = append(own, keysOf(use.Flag, c.prefix+name)...)
					}
				}
				for use := range keysOfUse {
					for _, name := range c.names {
						all = append(all, keysOf(use, c.prefix+name)...)
					}
					for _, name := range c.others {
						all = append(all, keysOf(use, name)...)
					}
				}
				for _, list := range []*[]string{&own, &all} {
					slices.Sort(*list)
					*list = slices.Compact(*list)
				}
				rules := RulesOf(uses)
				// A client's record belongs to no name.
				anyClient := func(key string) bool { return strings.HasPrefix(key, "~leasewheel:client:{") }
				notOwn := func(keys []string) []string {
					return slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(own, key) || anyClient(key) })
				}
				assert.Empty(t, notOwn(may(t, rules, all)), "reached, and not of this use")
				allowed := may(t, rules, own)
				assert.Equal(t, own, allowed, "all that the use has")
				for _, rule := range rules {
					if rule[0] == '~' || rule[0] == '&' {
						assert.NotEmpty(t, may(t, []string{rule}, own), "%s is the rule of a key", rule)
					}
				}
			})
		}
	}
}
