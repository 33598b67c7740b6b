package pubsub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// A connection without subscriptions is closed at its next check. A subscription that is
// made at that moment gets another one.
func TestIdleSubscriptionConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
	defer s.Close()
	ended := make(chan struct{})
	var checks sync.WaitGroup
	checks.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				s.checkConns()
			}
		}
	})
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sub, err := s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		cancel()
		if !assert.NoError(t, err) {
			break
		}
		sub.Close()
	}
	close(ended)
	checks.Wait()
}

// checkConns checks the connections, as is done every few seconds.
func (s *Subscriber) checkConns() {
	s.mu.Lock()
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, cn := range conns {
		cn.received.Store(true) // since the last check
		cn.check()
	}
}
