package redisstore

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// latestDial is a hook of a client of sentinels. It keeps the address of the latest connection,
// which is that of the master as the sentinels name it.
type latestDial struct{ address atomic.Pointer[string] }

// node returns the address; "" before there was a connection.
func (d *latestDial) node() string {
	if address := d.address.Load(); address != nil {
		return *address
	}
	return ""
}

func (d *latestDial) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, named string) (net.Conn, error) {
		conn, err := next(ctx, network, named)
		if err == nil && conn.RemoteAddr() != nil { // which a user's dialer may leave out
			address := conn.RemoteAddr().String()
			d.address.Store(&address)
		}
		return conn, err
	}
}

func (*latestDial) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (*latestDial) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
