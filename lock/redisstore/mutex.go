package redisstore

import (
	"cmp"
	"context"
	"hash/maphash"
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
	fence   = transport.File("fence.lua")
)

// mutex keeps [driver.KindMutex]: Redisson's RLock. Redisson's clients receive every
// release on one channel and ask again. Those of leasewheel enter a wait queue: a release
// grants the lock to the first of them, on a channel of its own.
var mutex = kind{
	handlers: func(r request) []handler {
		waiting, parse := waitChannel(r.at), r.store.secrets.parseGrant
		if r.store.config.Replicas > 0 {
			parse = askAgain // the repeated request waits for replicas, which a release does not
		}
		return []handler{
			// The channel of all leasewheel clients is first: a client that subscribes to
			// Redisson's channel without it counts as one of Redisson's.
			{waiting, ignore},
			{channelKey(r.at), askAgain},
			{waiting + ":" + key(driver.ClientOf(r.Owner)), parse},
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
	return n, err == nil && n >= 0 && n <= lua.MaxNumber
}

// secrets are the words that authenticate grants to owners. Only this store, the server and
// the readers of the wait queue know them.
type secrets struct{ seed maphash.Seed }

// of returns the owner's secret.
func (s secrets) of(owner string) string {
	return strconv.FormatUint(maphash.String(s.seed, owner), 36)
}

// member returns the owner's member in the wait queue, "" for an owner that does not wait.
func member(r request) string {
	if !r.Queue.Subscribed {
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
	derived             [4]string
	publish             string // see Store.publishing
	life, ttl, proposed int64  // life of the fencing counter and ttl in ms
}

// newLockCall returns a call without arguments. Its keys are the lock's and those that are
// derived from it by the prefixes.
func newLockCall(sc *transport.Script, r request, prefixes []string) *lockCall {
	c := &lockCall{at: r.at, owner: r.Owner, publish: r.publish, life: r.store.fenceMillis, ttl: r.TTL.Milliseconds(), proposed: r.token}
	before, after := ":{", "}" // as derive has them, but in one text for all: one allocation
	if strings.Contains(string(r.at), "{") {
		before, after = ":", ""
	}
	var all strings.Builder
	all.Grow(len(prefixes) * (len(before) + len(r.at) + len(after) + len(channelPrefix))) // the longest prefix
	c.keyList[0] = (*string)(&c.at)
	for i, prefix := range prefixes {
		start := all.Len()
		all.WriteString(prefix)
		all.WriteString(before)
		all.WriteString(string(r.at))
		all.WriteString(after)
		c.derived[i] = all.String()[start:]
		c.keyList[1+i] = &c.derived[i]
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
	if member != "" && r.Queue.Reserve > 0 && r.Count == 1 && r.store.config.Replicas > 0 {
		c.Args = append(c.Args, true) // it has used none of the tokens that a release has reserved
	}
	return &c.Call, nil
}

func releaseMutex(r request) (*transport.Call, error) {
	c := newLockCall(release, r, releasePrefixes)
	channel := c.Keys[4] // an argument of this script
	c.Keys = c.Keys[:4]
	c.Args = append(c.Args, &c.publish, &c.life, channel, &c.owner)
	// With Config.Replicas it is not known whether a release has granted the lock to one that waited.
	granted := r.Queue.Granted || r.Queue.Subscribed && r.store.config.Replicas > 0
	if member := member(r); r.Count != 0 || member != "" || granted {
		c.Args = append(c.Args, r.Count, &c.ttl, member, granted)
	}
	return &c.Call, nil
}

func prolong(s *Store, c *transport.Call, at key, lease *renewal.Item) {
	s.prolongAs(c, at, lease, lease.Owner)
}

// Fences reports whether mutexes have fencing tokens, see [Config.PlainTokens]. Package quorum refuses
// nodes with and without them.
func (s *Store) Fences() bool { return s.config.Format != FormatPlain || s.config.PlainTokens }

// prolongAs adds one hold, whose owner has that field in the lock's hash, to a renewal. The
// fencing counter lives on by those renewals of a held lock that are sent around the ends of
// halves of its life, so that most cost the server nothing for it. A counter that ends between
// two renewals is left out: while a cluster moves a slot, it runs no script of several keys of
// which one is missing.
func (s *Store) prolongAs(c *transport.Call, at key, lease *renewal.Item, owner string) {
	ttl := lease.TTL.Milliseconds()
	c.Keys = append(c.Keys, string(at))
	if half := s.fenceMillis / 2; half > 0 && ttl <= s.fenceMillis && s.Fences() {
		now, most := time.Now().UnixMilli(), ttl*2/5 // renewals are a third of the TTL apart, and may be late
		if now/half != (now-most)/half {
			c.Keys = append(c.Keys, string(tokenKey(at)))
			c.Args = append(c.Args, ttl, owner, s.fenceMillis)
			return
		}
	}
	c.Args = append(c.Args, ttl, owner, "")
}

// Fence raises the fencing counter of a mutex to at least token, if the owner holds the
// mutex. It is for stores made of several servers, as in package quorum: their tokens
// must grow together. If the owner does not hold the mutex, Fence does nothing and held
// is false.
func (s *Store) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	at, err := s.config.key(h.Name)
	if err != nil {
		return false, err
	}
	reply, err := s.transport.Run(ctx, newCall(fence, []key{at, tokenKey(at)}, h.Owner, token, s.fenceMillis))
	if err != nil {
		return false, err
	}
	raised, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return raised == 1, nil
}
