package redistest

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// CountRoundTrips counts a client's round trips from now on, a pipeline as one. Subscriptions
// do not count.
func CountRoundTrips(client redis.UniversalClient) *atomic.Int64 {
	h := new(roundTrips)
	client.AddHook(h)
	return &h.count
}

type roundTrips struct{ count atomic.Int64 }

func (h *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count.Add(1)
		return next(ctx, cmd)
	}
}

func (h *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count.Add(1)
		return next(ctx, cmds)
	}
}
