package renewal

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// check follows the links of every list of the calendar and counts the leases.
func (c *calendar) check(t require.TestingT) (n int) {
	for i := range c.ring {
		s := &c.ring[i]
		var prev *Lease
		for l := s.head; l != nil; l = l.next {
			require.True(t, l.place == s && l.prev == prev, "broken link in slot %d", i)
			prev = l
			n++
		}
		if s.head != nil {
			require.NotZero(t, c.occupied[i/64]&(1<<(i%64)), "slot %d is not marked", i)
		}
	}
	return n
}

// The calendar against a plain set of leases: due leases are taken at most a slot late
// and never early; leases taken early are within their slack.
func TestCalendarModel(t *testing.T) {
	const width = 10 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		c := &calendar{width: instant(width), ring: new([slots]list)}
		now := instant(0)
		waiting := map[*Lease]bool{}
		put := func(l *Lease) {
			l.due = now.add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(3*slots*width)).Draw(t, "due")))
			waiting[l] = true
			c.put(l)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				put(&Lease{span: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "span"))})
			},
			"put again": func(t *rapid.T) {
				for l := range waiting {
					put(l)
					return
				}
			},
			"unlink": func(t *rapid.T) {
				for l := range waiting {
					l.unlink()
					l.unlink() // twice does no harm
					delete(waiting, l)
					return
				}
			},
			"take what is due": func(t *rapid.T) {
				limit := rapid.IntRange(1, 4).Draw(t, "limit")
				taken := c.takeDue(now, limit, nil)
				due := 0
				for l := range waiting {
					if l.due <= now-instant(width) {
						due++
					}
				}
				if len(taken) > limit || len(taken) < min(due, limit) {
					t.Fatalf("%d leases are due, limit %d, taken %d", due, limit, len(taken))
				}
				for _, l := range taken {
					if !waiting[l] || l.due > now {
						t.Fatalf("taken %v early", l.due.sub(now))
					}
					delete(waiting, l)
				}
			},
			"take early": func(t *rapid.T) {
				for _, l := range c.takeEarly(now, rapid.IntRange(1, 4).Draw(t, "limit"), nil) {
					if !waiting[l] || l.due.sub(now) > slack(l.span) {
						t.Fatalf("taken %v early, slack %v", l.due.sub(now), slack(l.span))
					}
					delete(waiting, l)
				}
			},
			"go on": func(t *rapid.T) {
				now = now.add(time.Duration(rapid.Int64Range(0, int64(slots*width)).Draw(t, "pause")))
			},
			"empty": func(t *rapid.T) {
				n := 0
				for _, s := range c.empty() {
					for s.head != nil {
						s.head.unlink()
						n++
					}
				}
				if n != len(waiting) {
					t.Fatalf("%d of %d leases come out", n, len(waiting))
				}
				clear(waiting)
			},
			"": func(t *rapid.T) {
				if n := c.check(t); n != len(waiting) {
					t.Fatalf("%d leases in the calendar, %d are waiting", n, len(waiting))
				}
				next := c.next()
				for l := range waiting {
					if next > max(l.due, now)+instant(width) {
						t.Fatalf("the next look, in %v, is too late for a lease due in %v", next.sub(now), l.due.sub(now))
					}
				}
				if len(waiting) == 0 && next != never {
					t.Fatal("an empty calendar wants to be looked at")
				}
			},
		})
	})
}

// Leases that are held through a pause are not carried through all of it either, a calendar's
// length at a time: with mu locked, that would take hours here.
func TestLeasesInTheCalendarThroughAPause(t *testing.T) {
	const leases, year = 1000, 365 * 24 * time.Hour
	c := &calendar{width: instant(100 * time.Microsecond), ring: new([slots]list)}
	due := instant(0).add(3 * year)
	for i := range leases {
		c.put(&Lease{due: due.add(time.Duration(i) * time.Second)})
	}
	require.Empty(t, c.takeDue(due.add(-time.Hour), leases, nil))
	require.Equal(t, leases, c.check(t))
	for i := range c.ring {
		n := 0
		for l := c.ring[i].head; l != nil; l = l.next {
			n++
		}
		require.Less(t, n, leases/10, "slot %d: they are put again together, with mu locked", i)
	}
	now := due.add(leases / 2 * time.Second)
	require.Len(t, c.takeDue(now, leases, nil), leases/2+1)
	require.Len(t, c.takeDue(now.add(year), leases, nil), leases/2-1)
}

// A lane against sorting, with leases that end while they are queued.
func TestLaneModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, parked := &lane{}, &list{}
		var queue []queueEntry
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				l := &Lease{phase: queued}
				parked.push(l)
				x := queueEntry{instant(rapid.Int64Range(0, 100).Draw(t, "until")), l}
				queue = append(queue, x)
				g.push(x)
			},
			"end": func(t *rapid.T) {
				if len(queue) > 0 {
					i := rapid.IntRange(0, len(queue)-1).Draw(t, "which")
					queue[i].lease.unlink()
					queue = slices.Delete(queue, i, i+1)
				}
			},
			"prune": func(t *rapid.T) {
				g.prune()
				if len(g.queue) != len(queue) {
					t.Fatalf("%d turns are left of %d", len(g.queue), len(queue))
				}
			},
			"pop": func(t *rapid.T) {
				for len(g.queue) > 0 {
					x := g.pop()
					if !x.live() {
						continue
					}
					least := slices.MinFunc(queue, func(a, b queueEntry) int { return int(a.at - b.at) })
					if x.at != least.at {
						t.Fatalf("popped %d before %d", x.at, least.at)
					}
					queue = slices.DeleteFunc(queue, func(y queueEntry) bool { return y.lease == x.lease })
					x.lease.unlink()
					return
				}
				if len(queue) > 0 {
					t.Fatalf("%d leases have vanished", len(queue))
				}
			},
			"": func(*rapid.T) {},
		})
	})
}

// Leases that come after a pause are not carried through all of it, a calendar's length at
// a time: after a month that took 70 ms for a thousand leases.
func TestCalendarAfterAPause(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.stop(b.grant(Spec{Key: "before"}))
		time.Sleep(365 * 24 * time.Hour)
		b.dog.mu.Lock()
		defer b.dog.mu.Unlock()
		b.dog.held()
		defer func() { b.dog.stats.Held-- }()
		l := &Lease{due: b.dog.clock.now().add(10 * time.Second)}
		slot := b.dog.calendar.put(l)
		require.Equal(b, b.dog.calendar.slot(l.due), slot)
		l.unlink()
	})
}
