package locks

import (
	"context"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/redis/go-redis/v9"
)

// counter counts a server's commands and CPU time between the two edges of a measurement.
type counter struct {
	impl   impl
	ctx    context.Context
	client *redis.Client
	at     []contention.Calls // edges
	used   []time.Duration    // CPU, at the edges
}

func (i impl) count(t testing.TB, server *redistest.Server) *counter {
	return &counter{impl: i, ctx: t.Context(), client: server.Client(t)}
}

func (c *counter) edge() error {
	calls, err := contention.ReadCalls(c.ctx, c.client)
	if err != nil {
		return err
	}
	used, err := contention.ReadCPU(c.ctx, c.client)
	c.at, c.used = append(c.at, calls), append(c.used, used)
	return err
}

// cpu returns how much CPU time the server has used.
func (c *counter) cpu() time.Duration { return c.used[1] - c.used[0] }

// split returns how many commands clients have sent, and how many scripts have called.
func (c *counter) split() (commands, inner float64) {
	sent, called := c.at[1].Since(c.at[0]).Split(c.impl.sent)
	return float64(sent), float64(called)
}
