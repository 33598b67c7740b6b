//go:build unix

package demo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	redisserver "github.com/alicebob/miniredis/v2/server"
)

// clockStep is how far the embedded server's clock may lag behind. The server ages every
// key at each step, so a step's cost grows with the keys. Since a key's life begins at a
// lagging clock, a key may end a step too early. Leases of a second or more allow for
// that: drift is 2 ms and a hundredth of the TTL.
const clockStep = 10 * time.Millisecond

// embeddedServer is a Redis server inside this process. It listens on a loopback port,
// for child processes, and requires a password, against all others.
type embeddedServer struct {
	redis    *miniredis.Miniredis
	password string

	mu    sync.Mutex
	clock time.Time // guarded by mu; the server's
}

func startEmbeddedServer() (*embeddedServer, error) {
	if strconv.IntSize == 32 { // its scripts return ints, which fencing tokens exceed
		return nil, errors.New("the embedded server needs a 64-bit system; name a redis-server with --store")
	}
	e := &embeddedServer{redis: miniredis.NewMiniRedis(), password: rand.Text(), clock: time.Now()}
	e.redis.RequireAuth(e.password)
	if err := e.redis.Start(); err != nil {
		return nil, fmt.Errorf("the embedded server cannot listen on loopback: %w", err)
	}
	e.redis.SetTime(e.clock)
	e.redis.ClockTTL(true)
	e.redis.Server().SetPreHook(func(_ *redisserver.Peer, command string, _ ...string) bool {
		// Only scripts write keys with a TTL. The commands within a script pass here too,
		// while it holds the server's lock.
		if command == "EVALSHA" || command == "EVAL" {
			e.tick()
		}
		return false
	})
	return e, nil
}

// tick updates the server's clock before a script. As on a real server, time stands still
// while a script runs. Each update makes the server look at every key, 0.56 ms for 3,000, so
// there is one in clockStep: a key may end that much early, which is within a lease's drift.
func (e *embeddedServer) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); now.Sub(e.clock) >= clockStep {
		e.clock = now
		e.redis.SetTime(now)
	}
}

// url returns the URL, which is secret: it contains the password.
func (e *embeddedServer) url() string {
	return fmt.Sprintf("redis://:%s@%s/0", e.password, e.redis.Addr())
}

func (e *embeddedServer) close() { e.redis.Close() }
