package connect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// The limits of requests. They are variables for tests, which stall on a busy machine.
var (
	RequestTimeout    = driver.DefaultRequestTimeout
	ProbeTimeout      = time.Second // of the request that detects whether a port uses TLS
	CompletionTimeout = time.Second // of a completion, for which a shell waits
)

// requestLimit is a hook of go-redis that bounds each request of a client, with its
// repetitions. Without it a server that hangs is noticed after several time-outs.
type requestLimit time.Duration

// LimitRequests bounds each request to the server, also those to the nodes of a cluster. What is
// no Redis needs no bound beside that of each request.
func (s *Server) LimitRequests(limit time.Duration) {
	if s.Client == nil {
		return
	}
	s.Client.AddHook(requestLimit(limit))
	if cluster, ok := s.Client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(requestLimit(limit)) })
	}
}

func (l requestLimit) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l requestLimit) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(l))
		defer cancel()
		return next(ctx, cmd)
	}
}

func (l requestLimit) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(l))
		defer cancel()
		return next(ctx, cmds)
	}
}
