//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var dataFaults = []faultKind{
	{foreign, 3, alone, 500 * time.Millisecond, 4 * time.Second, writeForeign},
	{garbage, 8, alone, 500 * time.Millisecond, 4 * time.Second, writeGarbage},
	{forgery, 7, alone, time.Second, 6 * time.Second, forge},
}

// writeForeign writes a value that is no lock under the name of a lock.
func writeForeign(ctx, hard context.Context, r *round, f faultPlan) {
	name := fmt.Sprintf("%s %d", foreign, f.Seed)
	w := r.journal.open(window{Kind: foreign, Place: -1, Node: -1, Name: name})
	defer r.journal.shut(w)
	n := r.target(f)
	key := r.plan.Mapping.key(name)
	values := [][]any{{"HSET", key, "user", "ada"}, {"SET", key, "value"}, {"RPUSH", key, "a"}, {"HSET", key, "user", "ada", "mode", "dark"}}
	_ = n.do(ctx, hard, "DEL", key)
	if n.do(ctx, hard, values[f.Variant%len(values)]...) == nil {
		r.askForeign(ctx, hard, name)
	}
	<-ctx.Done()
	_ = n.do(hard, hard, "DEL", key)
}

// writeGarbage writes values that no client of ours would write to a key of a victim, and
// deletes all of the victim's keys at its end.
func writeGarbage(ctx, hard context.Context, r *round, f faultPlan) {
	w := r.journal.open(window{Kind: garbage, Place: -1, Node: -1, Name: f.Name})
	defer r.journal.shut(w)
	d, n := newDice(f.Seed, 0), r.target(f)
	for ctx.Err() == nil {
		key := pick(d, keysAt(r.plan.Mapping.key(f.Name)))
		actual, err := n.admin.Keys(ctx, "*"+escapePattern(f.Name)+"*").Result()
		if err == nil && len(actual) > 0 && d.chance(70) {
			key = pick(d, actual)
		}
		kind, _ := n.admin.Type(ctx, key).Result()
		if kind == "none" {
			kind = kindAt(key)
		}
		for _, command := range garbageFor(d, kind) {
			_ = n.admin.Do(hard, append([]any{command[0], key}, command[1:]...)...).Err()
		}
		pause(ctx, d.between(20*time.Millisecond, 300*time.Millisecond))
		if d.chance(60) {
			n.wipe(ctx, hard, f.Name)
		}
	}
	n.wipe(hard, hard, f.Name)
}

// wipe deletes all keys of a name.
func (n *node) wipe(ctx, hard context.Context, name string) {
	for ctx.Err() == nil {
		keys, err := n.admin.Keys(hard, "*"+escapePattern(name)+"*").Result()
		if err == nil && (len(keys) == 0 || n.admin.Del(hard, keys...).Err() == nil) {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// kindAt is the kind of value that belongs at a key.
func kindAt(key string) string {
	for _, k := range []struct{ part, kind string }{
		{"token", "string"}, {"redisson_lock_queue", "list"}, {"line", "zset"}, {"timeout", "zset"}, {"places", "zset"}, {"claim", "string"}, {":", "zset"},
	} {
		if strings.Contains(key, k.part) {
			return k.kind
		}
	}
	return "hash"
}

// garbageFor returns commands that write garbage to a key of a kind, most often of the
// right type.
func garbageFor(d dice, kind string) [][]any {
	numbers := []string{"9223372036854775806", "inf", "-inf", "1e300", "nan", "-1", "0", "18446744073709551616", "9007199254740993", "x"}
	long := strings.Repeat("a:", pick(d, []int{5_000, 100_000}))
	members := []string{long, long, long + " 1 1", strings.Repeat("1", 50_000), strings.Repeat(" ", 20_000), "x", "a:b 1e9 inf",
		"00000000-0000-4000-8000-000000000000:1 99999999999 1", "", ":::::", "gap"}
	if d.chance(10) {
		kind = pick(d, []string{"string", "hash", "zset", "list"})
		return append([][]any{{"DEL"}}, garbageFor(d, kind)...)
	}
	switch kind {
	case "hash":
		if d.chance(40) {
			return [][]any{{"HSET", "mode", pick(d, []string{"read", "write"}), pick(d, []string{"x", "00000000-0000-4000-8000-000000000000:1"}), pick(d, numbers)}}
		}
		return [][]any{{"HSET", pick(d, []string{"user", "mode", "00000000-0000-4000-8000-000000000000:1", "x", long}), pick(d, append(numbers, "read", "write", "ada"))},
			{"HSET", "x", pick(d, numbers)}, {"PERSIST"}}
	case "zset":
		var many []any
		for i := range pick(d, []int{1, 10, 10_000}) {
			many = append(many, strconv.Itoa(i), fmt.Sprintf("00000000-0000-4000-8000-%012d:1 1000 0", i))
		}
		return [][]any{{"ZADD", pick(d, []string{"inf", "-inf", "0", "1", "1e300"}), pick(d, members)}, append([]any{"ZADD"}, many...)}
	case "list":
		var many []any
		for i := range pick(d, []int{1, 10, 10_000}) {
			many = append(many, fmt.Sprintf("00000000-0000-4000-8000-%012d:1", i))
		}
		return [][]any{{"LPUSH", pick(d, members)}, append([]any{"LPUSH"}, many...)}
	}
	return [][]any{{"SET", pick(d, numbers)}}
}

// forge subscribes to all channels and publishes the received messages once more, and
// with other numbers and owners. Its user may publish, but not read.
func forge(ctx, hard context.Context, r *round, f faultPlan) {
	n, d := r.target(f), newDice(f.Seed, 0)
	w := r.journal.open(window{Kind: forgery, Place: -1, Node: n.number})
	defer r.journal.shut(w)
	heard := n.admin.PSubscribe(hard, "*")
	defer heard.Close()
	var latest []*redis.Message // the latest
	for ctx.Err() == nil {
		select {
		case m := <-heard.Channel(redis.WithChannelSize(1000)):
			if m == nil {
				return
			}
			if latest = append(latest, m); len(latest) > 20 {
				latest = latest[1:]
			}
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		if len(latest) == 0 || !d.chance(40) {
			continue
		}
		m := latest[len(latest)-1]
		if d.chance(30) {
			m = pick(d, latest)
		}
		pipe := n.admin.Pipeline()
		for range 30 { // at once, for owners that may be waiting now
			pipe.Publish(ctx, m.Channel, disguise(d, m.Payload))
		}
		pipe.Publish(ctx, m.Channel, m.Payload)
		pipe.Publish(ctx, m.Channel, pick(d, latest).Payload)
		_, _ = pipe.Exec(ctx)
		for len(heard.Channel()) > 50 { // its own messages
			<-heard.Channel()
		}
	}
}

// disguise changes the numbers of a message: that of the owner to an adjacent one, others
// to larger ones.
func disguise(d dice, text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if client, number, ok := strings.Cut(word, ":"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				words[i] = fmt.Sprintf("%s:%d", client, n+d.IntN(60)-20)
			}
		} else if n, err := strconv.ParseInt(word, 10, 64); err == nil && d.chance(50) {
			words[i] = strconv.FormatInt(n*pick(d, []int64{1, 10, 1000})+int64(d.IntN(1000)), 10)
		}
	}
	return strings.Join(words, " ")
}
