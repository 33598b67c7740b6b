//go:build real

package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSoak runs two JVMs and two Go processes on a lock of each kind for -soak, and counts
// overlaps in the resource.
func TestSoak(t *testing.T) {
	const permits = 3
	var used []string
	s := single(t)
	var clients []*client
	for i := range 2 {
		version := chosen()[min(i, len(chosen())-1)]
		used = append(used, version)
		java := open(t, ownRedisson(t, version), s.address)
		clients = append(clients, java, open(t, golang(t), s.address))
	}
	setter := open(t, golang(t), s.address)
	contests := make(map[string]*contest)
	for _, kind := range []string{"mutex", "fair", "read-write", "permits"} {
		capacity := 1 << 30
		if kind == "permits" {
			capacity = permits
		}
		w := newContest(t, s, capacity)
		contests[kind] = w
		if kind == "permits" {
			setter.do("set", "permits.set", w.name, permits)
		}
		for i, c := range clients {
			worker := fmt.Sprintf("%s %d", c.driver.name, i/2+1)
			switch kind {
			case "read-write":
				w.work(c, 2, "read", "listen", 2, 1, worker+" reads")
				w.work(c, 1, "write", "listen", 2, 4, worker+" writes")
			default:
				w.work(c, 2, kind, "listen", 2, 1, worker)
			}
		}
	}
	time.Sleep(*soakFor)
	for kind, w := range contests {
		var shares map[string]int // of read-write, while there were readers
		record(t, "2 soak: two JVMs, two Go processes, "+soakFor.String(), "Redisson "+strings.Join(used, ", "), kind, both, func() string {
			if shares == nil {
				shares = w.had
			}
			return fmt.Sprintf("overlaps 0, grants %v", shares)
		})
		if kind == "read-write" { // readers that overlap starve writers, see docs/interop.md
			var readers []string
			for _, worker := range w.workers {
				if strings.HasSuffix(worker, "reads") {
					readers = append(readers, worker)
				}
			}
			w.until("every reader has had a turn", eachHad(1, readers...))
			shares = w.turns()
			w.stopKind("read")
		}
		w.until("everybody has had a turn at "+kind, eachHad(1, w.workers...))
	}
	for kind, w := range contests { // all stop with the first
		turns := w.stop()
		t.Logf("%s for %v: grants %v", kind, *soakFor, turns)
	}
	if long() {
		t.Run("Redisson alone", redissonAlone)
	}
}

// redissonAlone runs the load of the soak's read-write lock with four clients of Redisson,
// for comparison.
func redissonAlone(t *testing.T) {
	s := single(t)
	version := chosen()[0]
	w := newContest(t, s, 1<<30)
	d := min(*soakFor, time.Minute)
	record(t, "2 soak: Redisson alone, "+d.String(), "Redisson "+version, "read-write", gapDash, func() string {
		return fmt.Sprintf("overlaps 0, grants %v", w.had)
	})
	for range 2 {
		jvm := ownRedisson(t, version)
		for range 2 {
			c := open(t, jvm, s.address)
			w.work(c, 2, "read", "listen", 2, 1, "reads")
			w.work(c, 1, "write", "listen", 2, 4, "writes")
		}
	}
	time.Sleep(d)
	t.Logf("Redisson alone for %v: grants %v", d, w.stop())
}

// TestOnePlainKey runs workers of every library with plain locks on one key.
func TestOnePlainKey(t *testing.T) {
	s := single(t)
	wheel := open(t, golang(t), s.address, "format=plain")
	others := open(t, golang(t), s.address)
	py := open(t, python(t), s.address)
	js := open(t, node(t), s.address)
	var turns map[string]int
	record(t, "plain: one key, a worker each, "+min(*soakFor, time.Minute).String(), "all", "plain", both, func() string {
		return fmt.Sprintf("overlaps 0, grants %v", turns)
	})
	w := newContest(t, s, 1)
	w.work(wheel, 1, "plain", "listen", 2, 1, "leasewheel")
	w.work(others, 1, "redsync", "listen", 2, 1, "redsync")
	w.work(others, 1, "redislock", "listen", 2, 1, "redislock")
	w.work(py, 1, "plain", "listen", 2, 1, "redis-py")
	w.work(js, 1, "redlock", "listen", 2, 1, "redlock")
	w.work(js, 1, "redlock-universal", "listen", 2, 1, "redlock-universal")
	turns = w.run(min(*soakFor, time.Minute), eachHad(1, w.workers...))
	t.Logf("grants: %v", turns)
}
