// Package backend makes backends of the conformance suite: on Redis, in the test's process and on
// real servers, and in memory.
package backend

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Over makes a dialer through a network, such as [redistest.Late.Over].
type Over func(redistest.DialFunc) redistest.DialFunc

// Site are the servers of a backend.
type Site struct {
	// Options configure a client. Its Dialer is not nil.
	Options func(t testing.TB) *redis.Options
	// Gone waits until the server has noticed the end of the clients called name.
	Gone func(t testing.TB, name string)
}

// InProcess returns the site of a server in the test's process.
func InProcess(server *locktest.Server) Site {
	return Site{
		Options: func(t testing.TB) *redis.Options {
			o := *server.Client(t).Options()
			o.Addr = "127.0.0.1:6379" // the resolver of names does not work in a bubble
			return &o
		},
		Gone: func(testing.TB, string) { time.Sleep(100 * time.Millisecond) },
	}
}

// InBubble returns the backend of servers in the process of a test in a synctest bubble.
func InBubble(open Stores, servers ...*locktest.Server) drivertest.Backend {
	sites := make([]Site, len(servers))
	for i, server := range servers {
		sites[i] = InProcess(server)
	}
	each := func(do func(*locktest.Server)) {
		for _, server := range servers {
			do(server)
		}
	}
	b := New(open, sites...)
	b.Delete = func(name string) { each(func(server *locktest.Server) { server.Delete(name) }) }
	b.StepClock = func(d time.Duration) { each(func(server *locktest.Server) { server.StepClock(d) }) }
	b.Restart = func(data bool) {
		synctest.Wait() // nothing runs while the data are saved
		each(func(server *locktest.Server) {
			var kept locktest.Data
			if data {
				kept = server.Save()
			}
			server.Restart(kept)
		})
	}
	return b
}

// Real returns the site of a redis-server.
func Real(server *redistest.Server) Site {
	return Site{
		Options: func(testing.TB) *redis.Options {
			o := server.Options()
			o.Dialer = new(net.Dialer).DialContext
			return o
		},
		Gone: func(t testing.TB, name string) {
			admin := server.Client(t)
			for begin := time.Now(); ; time.Sleep(time.Millisecond) {
				list, err := admin.ClientList(context.Background()).Result()
				if err == nil && !strings.Contains(list, " name="+name+" ") {
					return
				}
				if time.Since(begin) > time.Minute {
					t.Fatalf("the server has not noticed the end of a process: %v", err)
				}
			}
		},
	}
}

// Stores opens one store on the clients of all sites.
type Stores func(t testing.TB, clients ...redis.UniversalClient) driver.Store

// New returns a backend whose stores are made of one client for each site.
func New(open Stores, sites ...Site) drivertest.Backend {
	through := func(t testing.TB, name string, over Over) driver.Store {
		var clients []redis.UniversalClient
		for _, site := range sites {
			o := site.Options(t)
			o.Dialer, o.ClientName = over(o.Dialer), name
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			clients = append(clients, client)
		}
		return open(t, clients...)
	}
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Store {
			return through(t, "", func(dial redistest.DialFunc) redistest.DialFunc { return dial })
		},
		Kill: func(t testing.TB) (driver.Store, func()) {
			name := "killed:" + t.Name()
			var network redistest.Cut
			return through(t, name, network.Over), func() {
				network.Sever()
				for _, site := range sites {
					site.Gone(t, name)
				}
			}
		},
		Late: func(t testing.TB) drivertest.LateStore {
			network := new(redistest.Late)
			t.Cleanup(network.Close)
			return drivertest.LateStore{
				Store: through(t, "", network.Over),
				Hold:  network.HoldAfter, Pass: func() { network.Hold(false) }, Deliver: network.Deliver,
			}
		},
	}
}
