package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	semaphoreAcquire = &transport.Script{Text: lua.File("semaphore_acquire.lua"), Granting: true}
	semaphoreRelease = transport.File("semaphore_release.lua")
	semaphoreForget  = transport.File("semaphore_forget.lua")
	permitsCount     = transport.File("permits_count.lua")
)

// semaphore keeps [driver.KindSemaphore]: Redisson's RSemaphore. Its permits have no
// owners. The server therefore remembers requests, so that a repeated one does not take,
// or give, twice.
var semaphore = kind{
	handlers: semaphoreHandlers,
	acquire: func(r request) (*transport.Call, error) {
		return newCall(semaphoreAcquire,
			[]key{r.at, requestKey(r.at, r.Owner)},
			r.Semaphore.Permits, requestMillis(r.Hold)), nil
	},
	answer: shared,
	release: func(r request) (*transport.Call, error) {
		return newCall(semaphoreRelease,
			[]key{r.at, requestKey(r.at, r.Owner), semaphoreChannel(r.at)},
			r.Semaphore.Permits, requestMillis(r.Hold), r.Semaphore.Owed, r.publish, driver.MaxCount), nil
	},
	counter: permitsCount,
	counting: func(_ *Store, at key, request string) []key {
		return []key{at, semaphoreChannel(at), requestKey(at, request)}
	},
	rights: rights{
		flag: "semaphore", name: "semaphores and latches",
		scripts: []*transport.Script{semaphoreAcquire, semaphoreRelease, semaphoreForget, permitsCount},
		reached: func(of subject) (keys, channels []key) {
			return []key{requestKey(of.at, string(of.owner)), semaphoreChannel(of.at)}, []key{semaphoreChannel(of.at)}
		},
	},
}

func semaphoreChannel(at key) key { return derive("redisson_sc", at) }

func semaphoreHandlers(r request) []handler {
	return []handler{{semaphoreChannel(r.at), askAgain}}
}

// requestMillis is how long a request of the hold is remembered, in ms.
func requestMillis(h *driver.Hold) int64 { return 2 * h.TTL.Milliseconds() }

// shared parses a script's reply to an acquisition without tokens that other owners may
// share: it is the amount left.
func shared(reply any, h *driver.Hold) (driver.Answer, error) {
	a, err := answer(reply, h)
	a.More, a.Token = a.Token > 0, 0
	return a, err
}
