package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	latchWait  = transport.File("latch_wait.lua")
	latchCount = transport.File("latch_count.lua")
)

// latch keeps [driver.KindLatch]: Redisson's RCountDownLatch. A wait takes nothing.
var latch = kind{
	mode: "latch",
	handlers: func(r request) []handler {
		handlers := []handler{{latchChannel(r.at), askAgain}}
		if tagged(r.at) {
			handlers = append(handlers, handler{latchClusterChannel(r.at), askAgain})
		}
		return handlers
	},
	acquire: func(r request) (*transport.Call, error) { return newCall(latchWait, []key{r.at}), nil },
	answer:  shared,
	counter: latchCount,
	counting: func(s *Store, at key, request string) []key {
		channel := latchChannel(at)
		if s.cluster != nil && tagged(at) {
			channel = latchClusterChannel(at)
		}
		return []key{at, channel, requestKey(at, request)}
	},
	rights: &rights{
		flag:     " --semaphore",
		keys:     func(at, _, _ key) []key { return []key{latchChannel(at)} },
		channels: func(at, _, _ key) []key { return []key{latchChannel(at)} },
	},
}

// latchChannel is Redisson's channel of a latch. If the name has a hash tag of its own,
// the channel is not in the name's slot, so Redisson cannot keep such a latch in a
// cluster. There, leasewheel uses latchClusterChannel.
func latchChannel(at key) key { return latchPrefix + "{" + at + "}" }

func latchClusterChannel(at key) key { return latchPrefix + at }

const latchPrefix = "redisson_countdownlatch__channel__"
