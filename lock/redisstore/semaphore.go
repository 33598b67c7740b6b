package redisstore

import (
	"context"
	_ "embed"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

var (
	//go:embed semaphore_acquire.lua
	semaphoreAcquireSource string
	//go:embed semaphore_release.lua
	semaphoreReleaseSource string
	//go:embed expiry.lua
	expirySource string
	//go:embed permits_count.lua
	permitsCountSource string

	semaphoreAcquire = newTimelyScript(counterSource, semaphoreAcquireSource)
	semaphoreRelease = newTimelyScript(counterSource, semaphoreReleaseSource)
	permitsCount     = newTimelyScript(counterSource, overdueSource, expirySource, permitsCountSource)
)

// semaphore keeps [lock.KindSemaphore]: Redisson's RSemaphore. That its permits have
// no owners is why requests are remembered: one that is sent again must not take, or
// give, twice.
type semaphore struct{}

func semaphoreChannel(name string) string { return derive("redisson_sc", name) }

func (semaphore) ears(h *lock.Hold) []ear { return []ear{{semaphoreChannel(h.Name), askAgain}} }

func (semaphore) acquire(ctx context.Context, s *Store, h *lock.Hold) (lock.Answer, error) {
	own := requestKey(h.Name, h.Owner)
	reply, err := s.run(ctx, semaphoreAcquire,
		append([]string{h.Name, own}, s.settled.take(h.Name)...),
		h.Permits, memory(h), settledMemory(h))
	if err != nil {
		return lock.Answer{}, err
	}
	a, err := shared(reply)
	if a.Verdict == lock.Granted {
		s.settled.add(h.Name, own)
	}
	return a, err
}

// requestMemory is for how long a request is remembered whose reply may be lost: an
// outage after which the request is sent again may last so long.
const requestMemory = time.Hour

// memory is for how many ms a request of the hold is remembered.
func memory(h *lock.Hold) int64 { return max(settledMemory(h), requestMemory.Milliseconds()) }

// settledMemory is the same once its reply has come.
func settledMemory(h *lock.Hold) int64 { return 2 * h.TTL.Milliseconds() }

// settledRequests are requests for semaphores whose replies have come, so that they
// need not be remembered for long. The next acquisition of the semaphore says so to the
// server: on its own, that would cost a request each.
type settledRequests struct {
	mu    sync.Mutex
	keys  map[string][]string // by the semaphore's name; guarded by mu
	count int                 // of all keys; guarded by mu
}

const (
	// maxSettled bounds the memory for semaphores that are not acquired again.
	maxSettled = 10_000
	// settledAtOnce is how many go with one acquisition, which adds two with its release.
	settledAtOnce = 8
)

func (r *settledRequests) add(name, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count >= maxSettled {
		return
	}
	if r.keys == nil {
		r.keys = make(map[string][]string)
	}
	r.keys[name] = append(r.keys[name], key)
	r.count++
}

// take returns some of those for a semaphore, which it removes.
func (r *settledRequests) take(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys[name]
	n := min(len(keys), settledAtOnce)
	r.count -= n
	if n == len(keys) {
		delete(r.keys, name)
	} else {
		r.keys[name] = keys[n:]
	}
	return keys[:n:n]
}

// shared reads a script's reply to an acquisition of something that has no tokens,
// but of which others may have a part, too: how much of it is left.
func shared(reply any) (lock.Answer, error) {
	a, err := answer(reply)
	if a.Verdict == lock.Granted {
		a.More, a.Token = a.Token > 0, 0
	}
	return a, err
}

func (semaphore) release(ctx context.Context, s *Store, h *lock.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	owed := 0
	if h.Owed {
		owed = 1
	}
	keys := []string{h.Name, requestKey(h.Name, h.Owner), semaphoreChannel(h.Name)}
	reply, err := s.run(ctx, semaphoreRelease, keys,
		h.Permits, memory(h), owed, publish, lock.MaxCount)
	if err != nil {
		return false, err
	}
	s.settled.add(h.Name, keys[1])
	return freed(reply)
}

func (semaphore) counting(_ *Store, name, request string) (*script, []string) {
	return permitsCount, []string{name, semaphoreChannel(name), requestKey(name, request)}
}
