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

// others are the keys ("~") and channels ("&") of a name that no use has: of other programs, and
// of Redisson's other objects. N is the name, B the name in braces unless it has braces, C a
// client.
const others = `
  ~B:basket ~{N}:basket ~redisson_map:B ~leasewheel_lock_other:B ~leasewheel_queue_other:B
  ~leasewheel:client:C ~leasewheel_queue_claim:B:other ~leasewheel_request:B:other
  &B &redisson_map:B &leasewheel_lock__channel:B:other &redisson_lock__channel:B:other`

const client = "c0ffee00-0000-4000-8000-000000000001"

// othersOf returns the others of a name.
func othersOf(name string) []string {
	braced := name
	if !strings.Contains(name, "{") {
		braced = "{" + name + "}"
	}
	return strings.Fields(strings.NewReplacer(
		":B", ":"+braced, "~B", "~"+braced, "&B", "&"+braced, ":C", ":"+client, "{N}", "{"+name+"}",
	).Replace(others))
}

// keysOf returns the keys and channels of a use of a name, with those of one client.
func keysOf(use Use) (keys []string) {
	ids := strings.NewReplacer("????????-????-????-????-????????????:*", client+":1", "????????-????-????-????-????????????", client,
		"??????????????????????????", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "client:{*}", "client:{"+client+"}", "timeout:*", "timeout:1")
	for _, key := range use.Keys {
		keys = append(keys, "~"+ids.Replace(key))
	}
	for _, channel := range use.Channels {
		keys = append(keys, "&"+ids.Replace(channel))
	}
	return keys
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
		uses := Uses(connect.GlobLiteral(c.prefix) + c.pattern)
		ofUse, all := make(map[string][]string), []string(nil) // by use
		for _, name := range c.names {
			all = append(all, othersOf(c.prefix+name)...)
			for _, u := range Uses(c.prefix + name) {
				ofUse[u.Flag] = append(ofUse[u.Flag], keysOf(u)...)
				all = append(all, keysOf(u)...)
			}
		}
		for _, name := range c.others {
			all = append(all, othersOf(name)...)
			for _, u := range Uses(name) {
				all = append(all, keysOf(u)...)
			}
		}
		for _, u := range uses {
			if u.setting || u.Flag == "sentinel" {
				continue // without keys
			}
			t.Run(c.prefix+c.pattern+" "+u.Flag, func(t *testing.T) {
				uses := UsesOf(connect.GlobLiteral(c.prefix)+c.pattern, func(flag string) bool { return flag == u.Flag })
				own, all := []string(nil), slices.Clone(all)
				for _, use := range uses {
					own = append(own, ofUse[use.Flag]...)
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
