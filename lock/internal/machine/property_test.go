package machine_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// claims is what the callers believe: a hold lasts from its grant for its TTL, unless it is
// renewed or released.
type claims struct {
	*name
	until map[string]time.Time // by owner
	kind  map[string]driver.Kind
	under map[string]string
	token int64 // the largest
	// tokens are the latest ones of the owners.
	tokens map[string]int64
}

// claim records a grant. A token that is no larger than all before is of a hold that the owner
// had, or that readers share.
func (c *claims) claim(t *rapid.T, h *driver.Hold, token int64, ttl time.Duration) {
	joined := h.Kind == driver.KindRead && token == c.token
	if c.tokens[h.Owner] != token && !joined && token <= c.token {
		t.Fatalf("the token %d after %d", token, c.token)
	}
	c.token, c.tokens[h.Owner] = max(c.token, token), token
	c.until[h.Owner], c.kind[h.Owner], c.under[h.Owner] = c.now.Add(ttl), h.Kind, h.ReadWrite.Under
}

// receive claims what was granted by messages.
func (c *claims) receive(t *rapid.T) {
	for _, m := range c.sent {
		if m.Notice.Owner != "" {
			c.claim(t, &driver.Hold{Owner: m.Notice.Owner}, m.Notice.Token, m.Notice.TTL)
		}
	}
	c.sent = nil
}

// check fails if two owners believe that they exclude each other.
func (c *claims) check(t *rapid.T) {
	for a, until := range c.until {
		for b, other := range c.until {
			if a == b || !until.After(c.now) || !other.After(c.now) || c.kind[a] == driver.KindRead {
				continue
			}
			if c.kind[b] != driver.KindRead || c.under[b] != a {
				t.Fatalf("%s (%v) and %s (%v) hold it at the same time", a, c.kind[a], b, c.kind[b])
			}
		}
	}
}

func drawHold(t *rapid.T, kinds ...driver.Kind) *driver.Hold {
	k := rapid.SampledFrom(kinds).Draw(t, "kind")
	n := rapid.IntRange(0, 3).Draw(t, "owner")
	h := hold(k, fmt.Sprintf("c%d:%d%d", n, k, n))
	h.Count = int64(rapid.IntRange(0, 3).Draw(t, "count"))
	h.TTL = rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second}).Draw(t, "ttl")
	if rapid.Bool().Draw(t, "alone") {
		h.Queue = driver.Queue{}
	}
	h.Queue.Granted = rapid.Bool().Draw(t, "by release")
	if k == driver.KindWrite && rapid.Bool().Draw(t, "blocks") {
		h.ReadWrite.BlockReaders = time.Second
	}
	if k == driver.KindRead {
		h.ReadWrite.Under = fmt.Sprintf("c%d:%d%d", n, driver.KindWrite, n)
	}
	return h
}

// restore replaces the state by what is read of what is written of it. What is cut off is bad.
func (n *name) restore(t *rapid.T) {
	var out, in machine.Coder
	n.Code(&out)
	in = machine.Coder{Bytes: out.Bytes, Reading: true}
	restored := machine.State{Listening: n.Listening, Others: n.Others, OthersListening: n.OthersListening}
	if restored.Code(&in); in.Bad || len(in.Bytes) > 0 {
		t.Fatalf("%x is not read: %x is left", out.Bytes, in.Bytes)
	}
	cut := machine.Coder{Bytes: out.Bytes[:rapid.IntRange(0, len(out.Bytes)-1).Draw(t, "bytes")], Reading: true}
	if new(machine.State).Code(&cut); !cut.Bad {
		t.Fatalf("%x is read although it is cut off", out.Bytes)
	}
	n.State = restored
}

// No two owners hold a lock at the same time, except for readers, and those under the writer;
// tokens grow; a grant is repeated with its token.
func TestLocksExclude(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &claims{name: newName(), until: map[string]time.Time{}, kind: map[string]driver.Kind{}, under: map[string]string{}, tokens: map[string]int64{}}
		c.Others, c.OthersListening = rapid.Bool().Draw(t, "others"), 1
		kinds := []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite}
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				c.pass(time.Duration(rapid.Int64Range(0, 4_000_000).Draw(t, "µs")) * time.Microsecond)
			},
			"acquire": func(t *rapid.T) {
				h := drawHold(t, kinds...)
				h.Count = max(h.Count, 1)
				a := c.acquire(h)
				c.receive(t)
				if a.Verdict != driver.Granted {
					return
				}
				c.claim(t, h, a.Token, h.TTL)
				if again := c.acquire(h); again.Verdict != driver.Granted || again.Token != a.Token {
					t.Fatalf("%+v, and again %+v", a, again)
				}
			},
			"release": func(t *rapid.T) {
				h := drawHold(t, kinds...)
				if held := c.release(h); !held && c.until[h.Owner].After(c.now) {
					t.Fatal("a valid hold is not held")
				} else if h.Count == 0 {
					delete(c.until, h.Owner)
				} else if held {
					c.until[h.Owner] = c.now.Add(h.TTL)
				}
			},
			"renew": func(t *rapid.T) {
				h := drawHold(t, kinds...)
				if a := c.Renew(c.now, h); a.Verdict == driver.Granted {
					c.until[h.Owner], c.kind[h.Owner] = c.now.Add(max(a.Lease, 0)), h.Kind
					if a.Lease == 0 {
						c.until[h.Owner] = c.now.Add(h.TTL)
					}
				} else if c.until[h.Owner].After(c.now) {
					t.Fatalf("a valid hold is not renewed: %+v", a)
				}
			},
			"subscribe": func(t *rapid.T) {
				sent := c.sent
				c.subscribe(drawHold(t, kinds...))
				c.sent = sent
			},
			"unsubscribe": func(*rapid.T) { c.topics = nil },
			"": func(t *rapid.T) {
				c.restore(t)
				c.receive(t)
				c.check(t)
			},
		})
	})
}

// What a semaphore has, and what was taken from it, is always the same number; a request that
// is sent again changes nothing.
func TestPermitsAreConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newName()
		total := int64(5)
		n.count(driver.KindSemaphore, driver.CountCreate, total, "0")
		taken := map[string]int64{}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				h := hold(driver.KindSemaphore, fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "owner")))
				h.Semaphore.Permits = 1 + int64(len(h.Owner))
				if n.verdict(h) == driver.Granted {
					taken[h.Owner] = h.Semaphore.Permits
				}
			},
			"release": func(t *rapid.T) {
				h := hold(driver.KindSemaphore, fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "owner")))
				h.Semaphore.Permits = 1 + int64(len(h.Owner))
				if n.free(h) {
					delete(taken, h.Owner)
				}
			},
			"add": func(t *rapid.T) {
				by := rapid.Int64Range(-2, 2).Draw(t, "by")
				request := fmt.Sprint("add", rapid.IntRange(0, 9).Draw(t, "request"))
				before := n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count
				n.count(driver.KindSemaphore, driver.CountAdd, by, request)
				after := n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count
				n.count(driver.KindSemaphore, driver.CountAdd, by, request)
				if total += after - before; after-before != 0 && after-before != by {
					t.Fatalf("%d added %d", by, after-before)
				}
			},
			"": func(t *rapid.T) {
				n.restore(t)
				sum := n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count
				for _, permits := range taken {
					sum += permits
				}
				if sum != total {
					t.Fatalf("%d permits of %d", sum, total)
				}
			},
		})
	})
}

// Expiring permits that are available, expired, or in use are as many as were set.
func TestExpiringPermitsAreConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newName()
		n.count(driver.KindPermit, driver.CountCreate, 5, "0")
		draw := func(t *rapid.T) *driver.Hold {
			number := rapid.IntRange(1, 9).Draw(t, "owner")
			return hold(driver.KindPermit, fmt.Sprintf("%024d%08x", number, uint32(1<<32-2)), func(h *driver.Hold) { h.Semaphore.Permits = int64(number%3 + 1) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass":    func(t *rapid.T) { n.pass(time.Duration(rapid.Int64Range(0, 12_000).Draw(t, "ms")) * time.Millisecond) },
			"acquire": func(t *rapid.T) { n.acquire(draw(t)) },
			"release": func(t *rapid.T) { n.free(draw(t)) },
			"renew":   func(t *rapid.T) { n.Renew(n.now, draw(t)) },
			"": func(t *rapid.T) {
				n.restore(t)
				if info := n.Inspect(n.now, driver.KindPermit); info.Count+info.HolderCount != 5 || info.Count < 0 {
					t.Fatalf("%d available, %d in use", info.Count, info.HolderCount)
				}
			},
		})
	})
}

// A fair lock is granted in the order of arrival, among those that keep their places.
func TestFairnessOfTheLiving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newName()
		var queue []string
		holder := hold(driver.KindFair, "h:0")
		n.acquire(holder)
		for range rapid.IntRange(1, 8).Draw(t, "waiters") {
			h := hold(driver.KindFair, fmt.Sprintf("c:%d", len(queue)))
			n.acquire(h)
			queue = append(queue, h.Owner)
		}
		for len(queue) > 0 {
			n.free(holder)
			asking := rapid.IntRange(0, len(queue)-1).Draw(t, "asking")
			if n.verdict(hold(driver.KindFair, queue[asking])) == driver.Granted != (asking == 0) {
				t.Fatalf("%s of %v", queue[asking], queue)
			}
			if leaving := rapid.IntRange(0, len(queue)-1).Draw(t, "leaving"); asking != 0 && leaving != 0 {
				n.free(hold(driver.KindFair, queue[leaving]))
				queue = append(queue[:leaving:leaving], queue[leaving+1:]...)
			}
			holder = hold(driver.KindFair, queue[0])
			n.acquire(holder)
			queue = queue[1:]
		}
	})
}
