package renewal

import (
	"math/bits"
	"time"
)

// list is a doubly linked list of leases. Its zero value is empty. Every held lease is in
// exactly one list, which its place points to.
type list struct {
	head *Lease
}

func (s *list) push(l *Lease) {
	l.place, l.next = s, s.head
	if l.next != nil {
		l.next.prev = l
	}
	s.head = l
}

// unlink takes the lease out of the list that it is in, if any.
func (l *Lease) unlink() {
	if l.place == nil {
		return
	}
	if l.prev == nil {
		l.place.head = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.place, l.prev, l.next = nil, nil, nil
}

// move unlinks the lease and links it in s.
func (l *Lease) move(s *list) {
	l.unlink()
	s.push(l)
}

const (
	// slots of one width each make a calendar: 41 s ahead at a tick of 10 ms.
	slots = 1 << 12
	words = slots / 64
)

// calendar keeps leases by the time at which they are due. A lease due beyond the last
// slot waits in one of the later half, and is put again when that slot comes.
//
// It is not the timing wheel: a renewal needs no timer of its own, and the calendar can
// list the leases that are due soon, which fill up a batch.
type calendar struct {
	width instant
	// cursor is the number of the first slot that may hold leases.
	cursor int64
	ring   *[slots]list
	// occupied has the bits of all slots that are not empty, and of some empty ones.
	occupied [words]uint64
}

// slot returns the number of the slot in which a lease waits for its due time: the first
// that begins then or later. So no lease is taken before it is due, and a renewal that is
// due again at once does not loop.
func (c *calendar) slot(due instant) int64 { return int64((due + c.width - 1) / c.width) }

// put makes the lease wait for its due time. A lease that is already due is taken next.
func (c *calendar) put(l *Lease) (slot int64) {
	slot = max(c.slot(l.due), c.cursor)
	if last := c.cursor + slots - 1; slot > last {
		slot = last - slot%(slots/2) // apart from others that are put again after a pause
	}
	l.move(&c.ring[slot%slots])
	c.occupied[slot%slots/64] |= 1 << (slot % 64)
	return slot
}

// first returns the number of the first slot from from on that is not empty.
func (c *calendar) first(from int64) (slot int64, ok bool) {
	for slot = from; slot < c.cursor+slots; {
		at := slot % slots
		rest := c.occupied[at/64] >> (at % 64)
		if rest == 0 {
			slot += 64 - at%64
			continue
		}
		slot += int64(bits.TrailingZeros64(rest))
		at = slot % slots
		if c.ring[at].head != nil {
			return slot, slot < c.cursor+slots
		}
		c.occupied[at/64] &^= 1 << (at % 64)
	}
	return 0, false
}

// skip moves an empty calendar to now. Otherwise the leases that come after a long pause
// would pass through all of it, a calendar's length at a time.
func (c *calendar) skip(now instant) { c.cursor = max(c.cursor, int64(now/c.width)) }

// empty takes all leases out. They stay linked in the lists that it returns.
func (c *calendar) empty() (lists []*list) {
	ring := c.ring
	for i := range ring {
		if ring[i].head != nil {
			lists = append(lists, &ring[i])
		}
	}
	c.ring, c.occupied = new([slots]list), [words]uint64{}
	return lists
}

// turn puts all leases again, as of today, after a pause that was longer than the calendar.
// Otherwise those that are due later would pass through all of it, a calendar's length at a time.
func (c *calendar) turn(today int64) {
	lists := c.empty()
	c.cursor = today
	for _, s := range lists {
		for s.head != nil {
			c.put(s.head)
		}
	}
}

// next returns when the next lease may be due.
func (c *calendar) next() instant {
	if slot, ok := c.first(c.cursor); ok {
		return instant(slot) * c.width
	}
	return never
}

// takeDue unlinks at most limit leases that are due at now, and adds them to out. It may
// leave some to the next slot.
func (c *calendar) takeDue(now instant, limit int, out []*Lease) []*Lease {
	today := int64(now / c.width)
	if today-c.cursor >= slots {
		c.turn(today)
	}
	for len(out) < limit {
		slot, ok := c.first(c.cursor)
		if !ok || slot > today {
			c.cursor = max(c.cursor, today)
			return out
		}
		c.cursor = slot
		l := c.ring[slot%slots].head
		l.unlink()
		if c.slot(l.due) > today {
			c.put(l) // its due time was beyond the last slot by then
			continue
		}
		out = append(out, l)
	}
	return out
}

// takeEarly unlinks leases that are not due yet but will be within their slack, nearest
// first, and adds them to out until out has limit leases. It looks at no more than twice
// as many as it may take.
func (c *calendar) takeEarly(now instant, limit int, out []*Lease) []*Lease {
	looks := 2 * (limit - len(out))
	for from := c.cursor; len(out) < limit; from++ {
		slot, ok := c.first(from)
		if !ok {
			break
		}
		from = slot
		for l := c.ring[slot%slots].head; l != nil && len(out) < limit; {
			next := l.next
			if looks--; looks < 0 {
				return out
			}
			if l.due.sub(now) <= slack(l.span) {
				l.unlink()
				out = append(out, l)
			}
			l = next
		}
	}
	return out
}

// The division of a lease's time.

// interval is how long after a grant of span its renewal is due.
func interval(span time.Duration) time.Duration { return span / 3 }

// slack is by how much a renewal may be early to fill up a batch.
func slack(span time.Duration) time.Duration { return interval(span) / 10 }
