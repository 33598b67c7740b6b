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

// slowRoundTrips returns how long the slow round trips of a process took in all between two
// instants: those to the server of a name, or to the slowest where all may be asked.
func (r *round) slowRoundTrips(h *history, process int, name string, from, to instant) (most time.Duration) {
	master, parted := r.masters[name]
	sums := map[int]time.Duration{}
	for _, e := range h.roundTrips[process] {
		begin := e.At.add(-time.Duration(e.N))
		if e.At >= from && begin <= to && (!parted || master < 0 || e.Node == master) {
			sums[e.Node] += min(e.At, to).sub(max(begin, from))
			most = max(most, sums[e.Node])
		}
	}
	return most
}
