package redisstore

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	latchWait  = transport.File("latch_wait.lua")
	latchCount = transport.File("latch_count.lua")
)

// latch keeps [driver.KindLatch]: Redisson's RCountDownLatch.
type latch struct{}

// latchChannel is Redisson's channel of a latch. If the name has a hash tag of its own,
// the channel is not in the name's slot, so Redisson cannot keep such a latch in a
// cluster. There, leasewheel uses latchClusterChannel.
func latchChannel(at key) key { return latchPrefix + "{" + at + "}" }

func latchClusterChannel(at key) key { return latchPrefix + at }

const latchPrefix = "redisson_countdownlatch__channel__"

func (latch) handlers(_ *Store, at key, _ *driver.Hold) []handler {
	handlers := []handler{{latchChannel(at), askAgain}}
	if tagged(at) {
		handlers = append(handlers, handler{latchClusterChannel(at), askAgain})
	}
	return handlers
}

func (latch) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	reply, err := s.run(ctx, latchWait, []key{at})
	if err != nil {
		return driver.Answer{}, err
	}
	return shared(reply)
}

// release has nothing to undo: a wait takes nothing.
func (latch) release(context.Context, *Store, key, *driver.Hold) (held bool, err error) {
	return true, nil
}

func (latch) counting(s *Store, at key, request string) (*transport.Script, []key) {
	channel := latchChannel(at)
	if s.cluster != nil && tagged(at) {
		channel = latchClusterChannel(at)
	}
	return latchCount, []key{at, channel, requestKey(at, request)}
}
