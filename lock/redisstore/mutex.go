package redisstore

import (
	"cmp"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	acquire = &transport.Script{Text: lua.File("acquire.lua"), Granting: true, Common: 2, Own: 3}
	release = &transport.Script{Text: lua.File("release.lua"), Common: 2, Own: 2}
	renew   = transport.File("renew.lua")
)

// mutex keeps [driver.KindMutex]: Redisson's RLock. Redisson's clients receive every
// release on one channel and ask again. Those of leasewheel enter a wait queue: a release
// grants the lock to the first of them, on a channel of its own.
var mutex = kind{
	handlers: func(r request) []handler {
		waiting := waitChannel(r.at)
		return []handler{
			// The channel of all leasewheel clients is first: a client that subscribes to
			// Redisson's channel without it counts as one of Redisson's.
			{waiting, ignore},
			{channelKey(r.at), askAgain},
			{waiting + ":" + key(driver.ClientOf(r.Owner)), r.store.secrets.parseGrant},
		}
	},
	acquire: acquireMutex,
	answer:  answerOfMutex,
	release: releaseMutex,
	renew:   renew,
	prolong: prolong,
	trace: &trace{
		keyType: "hash",
		pattern: func(prefix string) string { return escapePattern(prefix) + "*" },
		locks:   func(trace key) []key { return []key{trace} },
	},
	rights: rights{
		flag: "locks", name: "mutexes", needed: true,
		scripts: []*transport.Script{acquire, release, renew, announce},
		reached: mutexReaches,
	},
}

func mutexReaches(of subject) (keys, channels []key) {
	keys = []key{
		of.at, tokenKey(of.at), waitQueueKey(of.at), yieldKey(of.at), clientKey(string(of.record)),
		channelKey(of.at), waitChannel(of.at), // scripts get channels as keys, too
	}
	return keys, []key{channelKey(of.at), waitChannel(of.at), waitChannel(of.at) + ":" + of.client}
}

// ignore is the parser for a channel without messages.
func ignore(string) (n driver.Notice, ok bool) { return n, false }

// maxGrant is the greatest length of a grant's message, in bytes.
const maxGrant = 256

// parseGrant parses "<owner> <token> <µs> <ms> <reserved> <secret>". Any other message, also
// one without the owner's secret, makes the waiter ask: anyone may publish.
func (s secrets) parseGrant(payload string) (n driver.Notice, ok bool) {
	if len(payload) > maxGrant {
		return n, true
	}
	words := strings.Split(payload, " ")
	if len(words) != 6 || words[5] != s.of(words[0]) {
		return n, true
	}
	var numbers [4]int64 // token, µs, ms, reserved
	for i := range numbers {
		if numbers[i], ok = number(words[1+i]); !ok {
			return n, true
		}
	}
	return driver.Notice{
		Owner: words[0], Token: numbers[0], Reserved: numbers[3],
		At: time.UnixMicro(numbers[1]), TTL: remaining(numbers[2]),
	}, true
}

// number parses a whole number up to lua.MaxNumber.
func number(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && len(text) <= 16 && n >= 0 && n <= lua.MaxNumber
}

// secrets are the words that authenticate grants to owners. Only this store, the server and
// the readers of the wait queue know them.
type secrets struct{ seed maphash.Seed }

// of returns the owner's secret.
func (s secrets) of(owner string) string {
	return strconv.FormatUint(maphash.String(s.seed, owner), 36)
}

// member returns the owner's member in the wait queue, "" for an owner that does not
// wait. With Config.Replicas no owner enters the queue, since a release grants without
// waiting for replicas.
func member(r request) string {
	if !r.Queue.Subscribed || r.store.config.Replicas > 0 {
		return ""
	}
	provisional := max(cmp.Or(r.Queue.Provisional, r.TTL).Milliseconds(), 1)
	return r.Owner + " " + strconv.FormatInt(provisional, 10) + " " + strconv.FormatInt(r.Queue.Reserve, 10) + " " + r.store.secrets.of(r.Owner)
}

var (
	acquirePrefixes = []string{waitQueuePrefix, tokenPrefix, yieldPrefix}
	releasePrefixes = []string{waitQueuePrefix, tokenPrefix, yieldPrefix, channelPrefix}
)

// lockCall is a call that acquires or releases one mutex, and all that it points at, in one
// object: making and collecting objects is a quarter of the client's time. It has copies, since
// the hold may change while a request for it is in flight.
type lockCall struct {
	transport.Call
	keyList [5]any
	argList [8]any

	at                  key
	owner               string
	derived             [4]key
	publish             string // see messages.publishing
	life, ttl, proposed int64  // life of the fencing counter and ttl in ms
}

// newLockCall returns a call without arguments. Its keys are the lock's and those that are
// derived from it by the prefixes.
func newLockCall(sc *transport.Script, r request, prefixes []string) *lockCall {
	c := &lockCall{at: r.at, owner: r.Owner, publish: r.publish, life: r.store.fenceMillis, ttl: r.TTL.Milliseconds(), proposed: r.token}
	derived := c.derived[:len(prefixes)]
	deriveEach(r.at, prefixes, derived)
	c.keyList[0] = (*string)(&c.at)
	for i := range derived {
		c.keyList[1+i] = (*string)(&derived[i])
	}
	c.Call = transport.Call{Script: sc, Keys: c.keyList[:1+len(prefixes)], Args: c.argList[:0]}
	return c
}

func acquireMutex(r request) (*transport.Call, error) {
	member, c := member(r), newLockCall(acquire, r, acquirePrefixes)
	c.Args = append(c.Args, &c.publish, &c.life, &c.ttl, &c.owner, &c.proposed)
	if r.Count > 1 || member != "" || r.Queue.Reserve != 0 {
		c.Args = append(c.Args, r.Count, member, r.Queue.Reserve)
	}
	return &c.Call, nil
}

func answerOfMutex(reply any, h *driver.Hold) (driver.Answer, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < 3 {
		return driver.Answer{}, fault.Unexpected(reply)
	}
	a, err := answer(list[:2], h)
	switch more, _ := list[2].(int64); {
	case a.Verdict == driver.Granted:
		if more < 0 || more > h.Queue.Reserve {
			return driver.Answer{}, fault.Unexpected(reply)
		}
		a.Reserved = more
	case more > 0:
		a.At = time.UnixMicro(more)
	}
	return a, err
}

// clockOf returns the server's clock from the end of a mutex's reply, zero if it has none.
func clockOf(reply any) time.Time {
	list, _ := reply.([]any)
	if len(list) != 4 {
		return time.Time{}
	}
	micros, ok := list[3].(int64)
	if !ok || micros < 0 || micros > lua.MaxNumber {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// answer parses a script's reply to an acquisition.
func answer(reply any, _ *driver.Hold) (driver.Answer, error) {
	code, value, err := pair(reply)
	if err != nil {
		return driver.Answer{}, err
	}
	switch code {
	case 1:
		if value < 0 || value > lua.MaxNumber {
			return driver.Answer{}, fault.Unexpected(reply)
		}
		return driver.Answer{Verdict: driver.Granted, Token: value}, nil
	case 0:
		return driver.Answer{Wait: remaining(value)}, nil
	case 2:
		return driver.Answer{Wait: remaining(value), Foreign: true}, nil
	case 3:
		return driver.Answer{Verdict: driver.NotHeld}, nil
	case 4:
		return driver.Answer{Wait: remaining(value), Behind: true}, nil
	}
	return driver.Answer{}, fault.Unexpected(reply)
}

// remaining converts a reply of PTTL, with zero for a key that never expires. A key in
// its last millisecond has 0 ms left, which must not become zero.
func remaining(pttl int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	if pttl < 0 {
		return 0
	}
	return time.Duration(min(max(pttl, 1), longest)) * time.Millisecond
}

func releaseMutex(r request) (*transport.Call, error) {
	c := newLockCall(release, r, releasePrefixes)
	channel := c.Keys[4] // an argument of this script
	c.Keys = c.Keys[:4]
	c.Args = append(c.Args, &c.publish, &c.life, channel, &c.owner)
	if member := member(r); r.Count != 0 || member != "" || r.Queue.Granted {
		c.Args = append(c.Args, r.Count, &c.ttl, member, r.Queue.Granted)
	}
	return &c.Call, nil
}

func prolong(s *Store, c *transport.Call, at key, lease *renewal.Item) {
	s.prolongAs(c, at, lease, lease.Owner)
}

// fences reports whether locks have fencing counters.
func (s *Store) fences() bool { return s.config.Format != FormatPlain || s.config.PlainTokens }

// prolongAs adds one hold, whose owner has that field in the lock's hash, to a renewal. The
// fencing counter lives on by those renewals of a held lock that are sent around the ends of
// halves of its life, so that most cost the server nothing for it. A counter that ends between
// two renewals is left out: while a cluster moves a slot, it runs no script of several keys of
// which one is missing.
func (s *Store) prolongAs(c *transport.Call, at key, lease *renewal.Item, owner string) {
	ttl := lease.TTL.Milliseconds()
	c.Keys = append(c.Keys, string(at))
	if half := s.fenceMillis / 2; half > 0 && ttl <= s.fenceMillis && s.fences() {
		now, most := time.Now().UnixMilli(), ttl*2/5 // renewals are a third of the TTL apart, and may be late
		if now/half != (now-most)/half {
			c.Keys = append(c.Keys, string(tokenKey(at)))
			c.Args = append(c.Args, ttl, owner, s.fenceMillis)
			return
		}
	}
	c.Args = append(c.Args, ttl, owner, "")
}

// pair splits a script's reply of two integers.
func pair(reply any) (first, second int64, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, fault.Unexpected(reply)
	}
	first, ok1 := list[0].(int64)
	second, ok2 := list[1].(int64)
	if !ok1 || !ok2 {
		return 0, 0, fault.Unexpected(reply)
	}
	return first, second, nil
}
