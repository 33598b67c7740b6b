package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// key returns a key of the queue called name. As for locks it is "prefix:{name}", or
// "prefix:name" if the name has a hash tag.
func key(what, name string) string {
	if strings.Contains(name, "{") {
		return "leasewheel_queue_" + what + ":" + name
	}
	return "leasewheel_queue_" + what + ":{" + name + "}"
}

// The indices of some of the keys.
const (
	leasedKey  = 1
	recordsKey = 4
	channelKey = 6
)

// keysOf returns the keys that the scripts of a queue get; that of renewals gets fewer.
func keysOf(name string) []string {
	return []string{
		key("due", name), key("leased", name), key("dead", name),
		key("payload", name), key("record", name), key("token", name), key("channel", name),
	}
}

// kinds are those of the values of a queue's keys.
var kinds = [channelKey]string{"zset", "zset", "zset", "hash", "hash", "string"}

// replaced returns the error of a request that found a key of another kind, with its name.
func (q *Queue) replaced(ctx context.Context, err error) error {
	reply, _ := q.store.Run(ctx, kindsScript, q.keys[:channelKey])
	if n, ok := reply.(int64); ok && n > 0 && n <= channelKey {
		return fmt.Errorf("the key %s is no %s: rename or delete it: %w", q.keys[n-1], kinds[n-1], err)
	}
	return err
}

// commands returns those that the scripts call.
var commands = sync.OnceValue(func() (all []string) {
	scripts, _ := files.ReadDir(".") // never fails
	for _, file := range scripts {
		all = append(all, redisstore.NewScript(files, file.Name()).Commands()...)
	}
	return all
})

// Use returns what a Redis user needs for queues whose names match pattern, as Redis matches
// keys.
func Use(pattern string) redisstore.Use {
	const claim = "??????????????????????????" // as rand.Text makes them
	return redisstore.Use{
		Flag: "queue", Name: "delay queues, with or without locks", Commands: slices.Clone(commands()),
		Keys: append(keysOf(pattern), key("claim", pattern)+":"+claim), Channels: keysOf(pattern)[channelKey:],
	}
}
