package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// handshake is a hook by which a refused connection fails with the server's reason. go-redis takes
// the refusal for that of an old server without HELLO, and sends the next command: its error would
// be that the connection is closed, or each request's, if the connection has no user.
type handshake struct{}

// reasoned returns client with the hook.
func reasoned(client *redis.Client) *redis.Client {
	client.AddHook(handshake{})
	return client
}

func (handshake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (handshake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" {
			return next(ctx, cmd)
		}
		return fault.OfConnection(next(ctx, unretried{cmd}))
	}
}

// unretried is a command that go-redis sends once: the next attempt would find the connection closed.
type unretried struct{ redis.Cmder }

func (unretried) NoRetry() bool { return true }

func (handshake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
