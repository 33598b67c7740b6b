package redisstore

import "github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"

var (
	latchWait  = transport.File("latch_wait.lua")
	latchCount = transport.File("latch_count.lua")
)

// latch keeps [driver.KindLatch]: Redisson's RCountDownLatch. A wait takes nothing.
var latch = kind{
	handlers: func(r request) (handlers []handler) {
		for _, channel := range latchChannels(r.at) {
			handlers = append(handlers, handler{channel, askAgain})
		}
		return handlers
	},
	acquire: func(r request) (*transport.Call, error) { return newCall(latchWait, []key{r.at}), nil },
	answer:  shared,
	counter: latchCount,
	counting: func(s *Store, at key, request string) []key {
		channels := latchChannels(at)
		if s.cluster == nil {
			channels = channels[:1]
		}
		return []key{at, channels[len(channels)-1], requestKey(at, request)}
	},
	rights: rights{
		flag:    "semaphore",
		scripts: []*transport.Script{latchWait, latchCount},
		reached: func(of subject) (keys, channels []key) { return latchChannels(of.at), latchChannels(of.at) },
	},
}

// latchChannels returns Redisson's channel of a latch. If the name has a hash tag of its own,
// that channel is not in the name's slot, so Redisson cannot keep such a latch in a cluster.
// The last channel is the one that leasewheel uses there.
func latchChannels(at key) []key {
	const prefix = "redisson_countdownlatch__channel__"
	channels := []key{prefix + "{" + at + "}"}
	if tagged(at) {
		channels = append(channels, prefix+at)
	}
	return channels
}
