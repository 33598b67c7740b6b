package transport

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// epochs are the times between failovers, as far as this process notices them: sentinels name another
// master, or requests were refused as by a replica and are no longer. As long as they are, the client's
// address leads to the replica. It is a hook of a client of sentinels: a connection's address is that of the
// master as they name it.
type epochs struct {
	mu        sync.Mutex
	number    int64     // of the present one
	master    string    // the address of the latest connection; "" before there was one
	refusedAt time.Time // when a request was last refused; zero: in an earlier epoch
}

// calm is for how long no request is refused before the address leads to a master again.
const calm = 3 * time.Second

// Epoch returns the number of the present epoch. Connections of an earlier one may lead to a former master.
func (n *nodes) Epoch() int64 {
	e := n.epochs
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.refusedAt.IsZero() && time.Since(e.refusedAt) >= calm {
		e.number, e.refusedAt = e.number+1, time.Time{}
	}
	return e.number
}

// FollowSentinels adds a hook to the client, which stays.
func (n *nodes) FollowSentinels() { n.single.AddHook(n.epochs) }

// refused records a refusal as by a replica.
func (e *epochs) refused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusedAt = time.Now()
}

func (e *epochs) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, named string) (net.Conn, error) {
		conn, err := next(ctx, network, named)
		if err == nil && conn.RemoteAddr() != nil { // which a user's dialer may leave out
			e.mu.Lock()
			defer e.mu.Unlock()
			address := conn.RemoteAddr().String()
			if e.master != "" && e.master != address {
				e.number++
			}
			e.master = address
		}
		return conn, err
	}
}

func (*epochs) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (*epochs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
