package machine

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// State is all that a store keeps under one name. Its zero value has nothing. One goroutine
// at a time may use it.
type State struct {
	// Listening returns how many clients are subscribed to a topic now. Nil: none.
	Listening func(Topic) int
	// Others: clients of other libraries share the name, and OthersListening of them are
	// subscribed to the releases of a mutex. They do not enter its queue.
	Others          bool
	OthersListening int

	lock     lock      // of any kind that has an owner: they share the name
	queue    waitQueue // of a mutex
	fair     fairQueue
	claim    claim // of a waiting writer
	count    count // a semaphore or a latch
	permits  permits
	outcomes map[string]outcome // of requests that change a count
	token    int64              // the last one

	micros   int64 // the instant of the step, in µs since 1970
	ms       end   // the same in ms, rounded down
	messages []Message
	proposed int64 // see AcquireProposing
}

type lock struct {
	mode    mode
	owner   string // unless it is free or reading
	holds   int64  // of that owner
	readers map[string]reader
	ends    end // of the longest hold
}

type mode uint8

const (
	free      mode = iota
	exclusive      // as a mutex or as a fair lock
	reading
	writing // readers may hold it under the writer
)

// Message is a notice to every subscription to a topic. The zero Notice wakes a waiter.
type Message struct {
	To     Topic
	Notice driver.Notice
}

// Topic is what waiters subscribe to. Of is a client's id, an owner, or "" for all.
type Topic struct {
	Kind driver.Kind
	Of   string
}

// Topics of each kind's waiters. Those of permits are a semaphore's, those of readers a
// writer's.
var (
	mutexTopic     = Topic{Kind: driver.KindMutex}
	readWriteTopic = Topic{Kind: driver.KindWrite}
	semaphoreTopic = Topic{Kind: driver.KindSemaphore}
	latchTopic     = Topic{Kind: driver.KindLatch}
)

// grantsTo is the topic of the grants by release to an owner's client.
func grantsTo(owner string) Topic {
	client, _, _ := strings.Cut(owner, ":")
	return Topic{driver.KindMutex, client}
}

func fairTopic(owner string) Topic { return Topic{driver.KindFair, owner} }

// Topics returns the topics of a waiter for the hold.
func Topics(h *driver.Hold) []Topic {
	switch h.Kind {
	case driver.KindMutex:
		return []Topic{mutexTopic, grantsTo(h.Owner)}
	case driver.KindFair:
		return []Topic{fairTopic(h.Owner)}
	}
	return []Topic{kinds[h.Kind].topic}
}

// modes are what locks of each kind are while they are held. A kind without one has a count, and
// the others have owners with a number of holds.
var modes = [...]mode{
	driver.KindMutex: exclusive, driver.KindFair: exclusive, driver.KindRead: reading, driver.KindWrite: writing,
	driver.KindSemaphore: free, driver.KindPermit: free, driver.KindLatch: free,
}

// kinds are the steps of each kind.
var kinds = [...]struct {
	topic   Topic // of all waiters
	acquire func(*State, *driver.Hold) driver.Answer
	release func(*State, *driver.Hold) (held bool)
}{
	driver.KindMutex:     {mutexTopic, (*State).acquireMutex, (*State).releaseMutex},
	driver.KindFair:      {Topic{}, (*State).acquireFair, (*State).releaseFair},
	driver.KindRead:      {readWriteTopic, (*State).acquireRead, (*State).releaseRead},
	driver.KindWrite:     {readWriteTopic, (*State).acquireWrite, (*State).releaseWrite},
	driver.KindSemaphore: {semaphoreTopic, (*State).acquireSemaphore, (*State).releaseSemaphore},
	driver.KindPermit:    {semaphoreTopic, (*State).acquirePermits, (*State).releasePermits},
	driver.KindLatch:     {latchTopic, (*State).acquireLatch, (*State).releaseLatch},
}

func (s *State) listening(t Topic) int {
	if s.Listening == nil {
		return 0
	}
	return s.Listening(t)
}

func (s *State) wake(t Topic) { s.messages = append(s.messages, Message{To: t}) }

// Acquire requests a hold. One that the owner has is granted again, with a new TTL.
func (s *State) Acquire(now time.Time, h *driver.Hold) (driver.Answer, []Message) {
	s.begin(now)
	switch {
	case h.Kind != driver.KindSemaphore && s.foreignTo(h.Kind):
		return s.foreign(), nil
	case modes[h.Kind] != free && h.Count > 1 && !s.holds(h):
		return driver.Answer{Verdict: driver.NotHeld}, nil
	}
	return kinds[h.Kind].acquire(s, h), s.messages
}

// AcquireProposing is Acquire of a mutex, and proposes the token; see [driver.Fencer].
func (s *State) AcquireProposing(now time.Time, h *driver.Hold, token int64) (driver.Answer, []Message) {
	s.proposed = token
	defer func() { s.proposed = 0 }()
	return s.Acquire(now, h)
}

// Fence raises the last token to token at least, if the owner holds the mutex; see
// [driver.Fencer].
func (s *State) Fence(now time.Time, h *driver.Hold, token int64) (held bool) {
	s.begin(now)
	if held = s.holds(h); held {
		s.token = max(s.token, (token+15)/16*16)
	}
	return held
}

// Release lowers the owner's holds to h.Count, or lets the last one end h.Keep from now. It
// reports whether the owner had the hold. Without one an owner leaves the queue.
func (s *State) Release(now time.Time, h *driver.Hold) (held bool, _ []Message) {
	if h.Count == 0 && h.Keep > 0 {
		kept := *h
		kept.TTL = h.Keep
		return s.Renew(now, &kept).Verdict == driver.Granted, nil
	}
	s.begin(now)
	if h.Count > 0 && s.holds(h) {
		s.lower(h)
		return true, nil
	}
	return kinds[h.Kind].release(s, h), s.messages
}

// lower sets the holds of an owner that keeps some.
func (s *State) lower(h *driver.Hold) {
	switch l := &s.lock; h.Kind {
	case driver.KindRead:
		l.readers[h.Owner] = l.readers[h.Owner].lowered(int(h.Count), s.in(h.TTL))
		s.prolong(h.TTL)
	case driver.KindWrite:
		l.holds = min(h.Count, l.holds)
		s.prolong(h.TTL)
	default:
		l.holds, l.ends = h.Count, s.in(h.TTL)
	}
}

// Renew prolongs a lease to h.TTL from now. It is Granted, for the answer's Lease if that is not
// zero; Refused if others use the name; or NotHeld. It revives nothing.
func (s *State) Renew(now time.Time, h *driver.Hold) (a driver.Answer) {
	s.begin(now)
	switch {
	case h.Kind == driver.KindPermit:
		return s.renewPermits(h)
	case !s.holds(h):
		if l := s.lock.mode; l == free && !s.count.exists || l == reading && h.Kind == driver.KindRead {
			a.Verdict = driver.NotHeld
		}
		return a
	case h.Kind == driver.KindRead:
		a.Lease = s.renewReader(h)
	case h.Kind == driver.KindWrite:
		s.prolong(h.TTL)
	default:
		s.lock.ends = s.in(h.TTL)
	}
	a.Verdict = driver.Granted
	return a
}

// holds reports whether the owner has a hold of a lock.
func (s *State) holds(h *driver.Hold) bool {
	if h.Kind == driver.KindRead {
		return s.lock.readers[h.Owner].end() >= s.ms
	}
	return s.lock.mode != free && s.lock.mode == modes[h.Kind] && s.lock.owner == h.Owner
}

// foreignTo reports whether a name is in another use than the kind's: a lock is foreign to
// counts, a count to locks, and a mutex to read-write locks.
func (s *State) foreignTo(k driver.Kind) bool {
	switch modes[k] {
	case free:
		return s.lock.mode != free
	case exclusive:
		return s.count.exists
	}
	return s.count.exists || s.lock.mode == exclusive
}

func (s *State) foreign() driver.Answer {
	return driver.Answer{Wait: s.left(max(s.lock.ends, s.count.ends)), Foreign: true}
}

// Ends returns when nothing is left if no request comes. By then the clock has passed the last
// token, so that tokens grow without it. ok is false if a count never ends.
func (s *State) Ends() (at time.Time, ok bool) {
	permits := min(s.permits.last(), s.permits.ends) // of a count that was deleted, they end nevertheless
	last := max(s.lock.ends, s.queue.ends, s.fair.ends, s.claim.ends, s.count.ends, permits, end(s.token/1000))
	for _, o := range s.outcomes {
		last = max(last, o.ends)
	}
	return time.UnixMilli(int64(last)).Add(time.Millisecond), last != never
}

// Token returns the last token. SetToken replaces it, for a store that counts tokens by itself.
func (s *State) Token() int64 { return s.token }

// SetToken replaces the last token.
func (s *State) SetToken(token int64) { s.token = token }

// Lose drops everything but the last token, as a store that loses its data, without a message.
func (s *State) Lose() {
	*s = State{Listening: s.Listening, Others: s.Others, OthersListening: s.OthersListening, token: s.token}
}

// Code writes or reads all that is stored of a state, but not what its store knows.
func (s *State) Code(c *Coder) {
	ends := func(e *end) { Int(c, e) }
	l := &s.lock
	Int(c, &l.mode)
	c.Bad = c.Bad || l.mode > writing // of a later version
	c.Text(&l.owner)
	Int(c, &l.holds)
	Map(c, &l.readers, func(r *reader) { List(c, (*[]end)(r), ends) })
	ends(&l.ends)
	List(c, &s.queue.waiters, func(w *waiter) {
		c.Text(&w.owner)
		Int(c, &w.arrived)
		Int(c, &w.provisional)
		Int(c, &w.reserve)
	})
	Int(c, &s.queue.window)
	ends(&s.queue.ends)
	List(c, &s.fair.order, c.Text)
	Map(c, &s.fair.places, func(p *place) {
		ends(&p.ends)
		c.Bool(&p.subscribed)
	})
	ends(&s.fair.ends)
	c.Text(&s.claim.owner)
	ends(&s.claim.ends)
	c.Bool(&s.count.exists)
	Int(c, &s.count.n)
	ends(&s.count.ends)
	Map(c, &s.permits.expire, ends)
	ends(&s.permits.ends)
	Map(c, &s.outcomes, func(o *outcome) {
		c.Text(&o.did)
		Int(c, &o.reply)
		ends(&o.ends)
	})
	Int(c, &s.token)
}

// end is the last ms, since 1970, of something that ends. TTLs count in whole ms.
type end int64

const never end = math.MaxInt64

func (s *State) in(ttl time.Duration) end { return s.ms + end(ttl.Milliseconds()) }

// left returns the time until an end, 0 for never. In its last ms something has 1 ms left.
func (s *State) left(ends end) time.Duration {
	if ends == never {
		return 0
	}
	return time.Duration(max(ends-s.ms, 1)) * time.Millisecond
}

// begin starts a step, and drops what has ended before it.
func (s *State) begin(now time.Time) {
	s.micros, s.ms, s.messages = now.UnixMicro(), end(now.UnixMilli()), s.messages[:0]
	dropEnded(s, &s.lock, s.lock.ends)
	dropEnded(s, &s.queue, s.queue.ends)
	dropEnded(s, &s.fair, s.fair.ends)
	dropEnded(s, &s.claim, s.claim.ends)
	dropEnded(s, &s.count, s.count.ends)
	dropEnded(s, &s.permits, s.permits.ends)
	maps.DeleteFunc(s.outcomes, func(_ string, o outcome) bool { return o.ends < s.ms })
}

func dropEnded[T any](s *State, part *T, ends end) {
	if ends < s.ms {
		var none T
		*part = none
	}
}

// nextToken returns the token of a grant, and how many tokens after it are reserved for the
// owner. Tokens are max(last+1, clock in µs), in steps of 16: so they grow although a store
// may have lost the last one. Reserved ones are from the past, between the last one and now,
// up to 10 ms. A lock that was held before the grant keeps its token. A proposal up to a
// second ahead replaces the clock.
func (s *State) nextToken(held bool, proposed, reserve int64) (token, reserved int64) {
	last, now := s.token, s.micros
	if held && last > 0 {
		return last, 0
	}
	if ahead := proposed - now; ahead > 0 && ahead <= time.Second.Microseconds() {
		now = proposed
	}
	now -= now % 16
	if last >= now {
		now, reserve = last-last%16+16, 0
	}
	s.token = now
	if last == 0 || reserve == 0 {
		return now, 0
	}
	token = max(last+1, now-min(reserve, 10_000))
	return token, now - token
}
