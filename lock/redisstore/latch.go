package redisstore

import (
	"context"
	_ "embed"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

var (
	//go:embed latch_wait.lua
	latchWaitSource string
	//go:embed latch_count.lua
	latchCountSource string

	latchWait  = newScript(counterSource, latchWaitSource)
	latchCount = newTimelyScript(publishSource, counterSource, latchCountSource)
)

// latch keeps [driver.KindLatch]: Redisson's RCountDownLatch.
type latch struct{}

// latchChannel is Redisson's channel of a latch. If the name has a hash tag of its own,
// the channel is not in the name's slot, so Redisson cannot keep such a latch in a
// cluster. There, leasewheel uses latchClusterChannel.
func latchChannel(name string) string { return latchPrefix + "{" + name + "}" }

func latchClusterChannel(name string) string { return latchPrefix + name }

const latchPrefix = "redisson_countdownlatch__channel__"

func tagged(name string) bool { return strings.Contains(name, "{") }

func (latch) handlers(h *driver.Hold) []handler {
	handlers := []handler{{latchChannel(h.Name), askAgain}}
	if tagged(h.Name) {
		handlers = append(handlers, handler{latchClusterChannel(h.Name), askAgain})
	}
	return handlers
}

func (latch) acquire(ctx context.Context, s *Store, h *driver.Hold) (driver.Answer, error) {
	reply, err := s.run(ctx, latchWait, []string{h.Name})
	if err != nil {
		return driver.Answer{}, err
	}
	return shared(reply)
}

// release has nothing to undo: a wait takes nothing.
func (latch) release(context.Context, *Store, *driver.Hold) (held bool, err error) { return true, nil }

func (latch) counting(s *Store, name, request string) (*script, []string) {
	channel := latchChannel(name)
	if s.cluster != nil && tagged(name) {
		channel = latchClusterChannel(name)
	}
	return latchCount, []string{name, channel, requestKey(name, request)}
}
