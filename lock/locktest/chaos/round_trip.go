//go:build linux

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowRoundTrip is how long a round trip outside the library takes on a machine that is too busy
// to judge the time limits of requests. A request passes several times as many goroutines.
const slowRoundTrip = 50 * time.Millisecond

// measureRoundTrips reports how long a server takes to answer a request that has nothing to
// do with the library, by the way that the library's requests take, if that is long.
func (w *worker) measureRoundTrips(stop context.Context) {
	var nodes sync.WaitGroup
	defer nodes.Wait()
	for number, address := range w.plan.Nodes {
		nodes.Go(func() {
			client := redis.NewClient(&redis.Options{
				Addr: address, Username: userName, Password: userSecret,
				ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true, PoolSize: 1,
			})
			defer client.Close()
			for stop.Err() == nil {
				begin := now()
				try, cancel := context.WithTimeout(stop, time.Second)
				_ = client.Ping(try).Err() // a failure is as slow as an answer
				cancel()
				at := now()
				if took := at.sub(begin); took > slowRoundTrip {
					w.report(event{What: evRoundTrip, At: at, N: int64(took), Node: number})
				}
				pause(stop, slowRoundTrip-at.sub(begin))
			}
		})
	}
}
