//go:build real

package interop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A resource is a hash on the server in which workers record their holds, and overlaps: a
// writer beside another worker, or more workers than its capacity. ARGV: x alone or s shared,
// the capacity, the worker.
const (
	enterScript = `
		local x, s = tonumber(redis.call('hget', KEYS[1], 'x') or 0), tonumber(redis.call('hget', KEYS[1], 's') or 0)
		if x > 0 or ARGV[1] == 'x' and s > 0 or s >= tonumber(ARGV[2]) then redis.call('hincrby', KEYS[1], 'overlaps', 1) end
		redis.call('hincrby', KEYS[1], 'turns of ' .. ARGV[3], 1)
		return redis.call('hincrby', KEYS[1], ARGV[1], 1)`
	leaveScript = `
		redis.call('hincrby', KEYS[1], ARGV[1], -1)
		return 1`
)

// contest is a set of workers that contend for one lock.
type contest struct {
	t        *testing.T
	site     *site
	name     string // of the lock
	resource string
	capacity int

	workers []string
	working []job
	had     map[string]int // the grants of each worker, once they have stopped
	drivers map[*driver]bool
}

// A job is the work of one thread on a kind of lock.
type job struct {
	kind string
	done <-chan reply
}

func newContest(t *testing.T, s *site, capacity int) *contest {
	name := fresh("work")
	return &contest{t: t, site: s, name: name, resource: "resource of " + name, capacity: capacity, drivers: make(map[*driver]bool)}
}

// work starts threads of a client that acquire and release the lock. Hold and pause are in ms.
func (w *contest) work(c *client, threads int, kind, how string, hold, pause int, worker string) {
	for i := range threads {
		w.working = append(w.working, job{kind, c.begin(fmt.Sprintf("%s %s %d", worker, kind, i), "work", kind, w.name, how, hold, pause,
			w.resource, worker, w.capacity, enterScript, leaveScript)})
	}
	w.drivers[c.driver] = true
	w.workers = append(w.workers, worker)
}

// stop ends the work and returns the grants of each worker. An overlap fails the test. The
// drivers of the contest cannot be used afterwards.
func (w *contest) stop() map[string]int {
	w.t.Helper()
	for d := range w.drivers {
		require.NoError(w.t, await(w.t, d.request("stop", "stop")).err)
	}
	for _, j := range w.working {
		require.NoError(w.t, await(w.t, j.done).err)
	}
	w.had = w.turns()
	return w.had
}

// stopKind ends the work on one kind of lock, of all contests of these drivers.
func (w *contest) stopKind(kind string) {
	w.t.Helper()
	for d := range w.drivers {
		require.NoError(w.t, await(w.t, d.request("stop", "stop", kind)).err)
	}
	w.working = slices.DeleteFunc(w.working, func(j job) bool {
		if j.kind != kind {
			return false
		}
		require.NoError(w.t, await(w.t, j.done).err)
		return true
	})
}

func (w *contest) turns() map[string]int {
	w.t.Helper()
	fields, err := w.site.keys.HGetAll(w.t.Context(), w.resource).Result()
	require.NoError(w.t, err)
	assert.Empty(w.t, fields["overlaps"], "two held the lock at once")
	turns := make(map[string]int)
	for field, text := range fields {
		if worker, ok := strings.CutPrefix(field, "turns of "); ok {
			turns[worker], _ = strconv.Atoi(text)
		}
	}
	return turns
}

// run waits for a time, and until the workers have enough grants.
func (w *contest) run(d time.Duration, enough func(turns map[string]int) bool) map[string]int {
	w.t.Helper()
	time.Sleep(d)
	w.until("enough turns", enough)
	return w.stop()
}

// until waits until the workers have enough grants. A worker that ends before fails the test.
func (w *contest) until(what string, enough func(turns map[string]int) bool) {
	w.t.Helper()
	eventually(w.t, what, func(context.Context) bool {
		time.Sleep(50 * time.Millisecond)
		for i, j := range w.working {
			select {
			case r := <-j.done:
				w.t.Fatalf("worker %d has ended: %v", i, r.err)
			default:
			}
		}
		return enough(w.turns())
	})
}

// eachHad is satisfied when each worker has the given number of grants.
func eachHad(n int, workers ...string) func(map[string]int) bool {
	return func(turns map[string]int) bool {
		for _, worker := range workers {
			if turns[worker] < n {
				return false
			}
		}
		return true
	}
}
