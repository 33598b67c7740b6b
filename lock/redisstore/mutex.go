package redisstore

import (
	"cmp"
	"context"
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
type mutex struct{}

func waitQueueKey(at key) key { return derive(waitQueuePrefix, at) }

// waitChannel is the channel to which all waiting clients of leasewheel subscribe. With
// ":" and a client's id it is the channel of that client's grants.
func waitChannel(at key) key { return derive("leasewheel_lock__channel", at) }

// handlers begins with the channel of all leasewheel clients: a client that subscribes to
// Redisson's channel without it counts as one of Redisson's.
func (mutex) handlers(s *Store, at key, h *driver.Hold) []handler {
	return []handler{
		{waitChannel(at), ignore},
		{channelKey(at), askAgain},
		{waitChannel(at) + ":" + key(driver.ClientOf(h.Owner)), s.parseGrant},
	}
}

// ignore is the parser for a channel without messages.
func ignore(string) (n driver.Notice, ok bool) { return n, false }

// maxGrant is the greatest length of a grant's message, in bytes.
const maxGrant = 256

// parseGrant parses "<owner> <token> <µs> <ms> <reserved> <secret>". Any other message, also
// one without the owner's secret, makes the waiter ask: anyone may publish.
func (s *Store) parseGrant(payload string) (n driver.Notice, ok bool) {
	if len(payload) > maxGrant {
		return n, true
	}
	words := strings.Split(payload, " ")
	if len(words) != 6 || words[5] != s.secret(words[0]) {
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

// secret returns the word that authenticates a grant to an owner. Only this store, the
// server and the readers of the wait queue know it.
func (s *Store) secret(owner string) string {
	return strconv.FormatUint(maphash.String(s.seed, owner), 36)
}

// member returns the owner's member in the wait queue, "" for an owner that does not
// wait. With Config.Replicas no owner enters the queue, since a release grants without
// waiting for replicas.
func (s *Store) member(h *driver.Hold) string {
	if !h.Queue.Subscribed || s.config.Replicas > 0 {
		return ""
	}
	provisional := max(cmp.Or(h.Queue.Provisional, h.TTL).Milliseconds(), 1)
	return h.Owner + " " + strconv.FormatInt(provisional, 10) + " " + strconv.FormatInt(h.Queue.Reserve, 10) + " " + s.secret(h.Owner)
}

var (
	acquirePrefixes = []string{waitQueuePrefix, tokenPrefix, yieldPrefix}
	releasePrefixes = []string{waitQueuePrefix, tokenPrefix, yieldPrefix, channelPrefix}
)

func (m mutex) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	a, _, err := m.acquireProposing(ctx, s, at, h, 0)
	return a, err
}

// acquireProposing is acquire with a proposed token; see [driver.Fencer].
func (mutex) acquireProposing(ctx context.Context, s *Store, at key, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return a, clock, err
	}
	c := newLockCall(acquire, at, h, acquirePrefixes)
	c.publish, c.life, c.proposed = publish, s.fenceMillis(), token
	c.Args = append(c.Args, &c.publish, &c.life, &c.ttl, &c.owner, &c.proposed)
	member := s.member(h)
	if h.Count > 1 || member != "" || h.Queue.Reserve != 0 {
		c.Args = append(c.Args, h.Count, member, h.Queue.Reserve)
	}
	reply, err := s.transport.Run(ctx, &c.Call)
	if err != nil {
		return a, clock, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) < 3 {
		return a, clock, fault.Unexpected(reply)
	}
	a, err = answer(list[:2])
	switch more, _ := list[2].(int64); {
	case a.Verdict == driver.Granted:
		if more < 0 || more > h.Queue.Reserve {
			return driver.Answer{}, clock, fault.Unexpected(reply)
		}
		a.Reserved = more
		clock = clockOf(list[3:])
	case more > 0:
		a.At = time.UnixMicro(more)
	}
	return a, clock, err
}

// clockOf returns the server's clock from the end of a reply, zero if it has none.
func clockOf(rest []any) time.Time {
	if len(rest) != 1 {
		return time.Time{}
	}
	micros, ok := rest[0].(int64)
	if !ok || micros < 0 || micros > lua.MaxNumber {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// fenceMillis returns the life of a fencing counter as scripts take it.
func (s *Store) fenceMillis() int64 { return max(s.config.FenceTTL, 0).Milliseconds() }

// answer parses a script's reply to an acquisition.
func answer(reply any) (driver.Answer, error) {
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

func (mutex) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	c := newLockCall(release, at, h, releasePrefixes)
	c.publish, c.life = publish, s.fenceMillis()
	channel := c.Keys[4] // an argument of this script
	c.Keys = c.Keys[:4]
	c.Args = append(c.Args, &c.publish, &c.life, channel, &c.owner)
	member := s.member(h)
	if h.Count != 0 || member != "" || h.Queue.Granted {
		c.Args = append(c.Args, h.Count, &c.ttl, member, h.Queue.Granted)
	}
	reply, err := s.transport.Run(ctx, &c.Call)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (mutex) renewal() *transport.Script { return renew }

func (mutex) prolong(c *transport.Call, at key, lease *renewal.Item) {
	c.Keys = append(c.Keys, string(at))
	c.Args = append(c.Args, lease.TTL.Milliseconds(), lease.Owner)
}

// freed parses a script's reply to a release: whether the owner had the lock.
func freed(reply any) (held bool, err error) {
	code, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return code >= 0, nil
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
