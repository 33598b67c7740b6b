package redisstore

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	permitAcquire = &transport.Script{Text: lua.File("permit_acquire.lua"), Granting: true}
	permitRelease = transport.File("permit_release.lua")
	permitRenew   = transport.File("permit_renew.lua")
)

// permit keeps [driver.KindPermit]: Redisson's RPermitExpirableSemaphore.
var permit = kind{
	handlers: semaphoreHandlers,
	acquire: func(r request) (*transport.Call, error) {
		if r.Count > 1 {
			return nil, fmt.Errorf("%w: several holds of one permit", driver.ErrUnsupported)
		}
		id, several, err := permitID(r.Owner, r.Semaphore)
		return newCall(permitAcquire,
			[]key{r.at, permitsKey(r.at), tokenKey(r.at), semaphoreChannel(r.at)},
			r.TTL.Milliseconds(), id, r.store.fenceMillis, r.publish, several), err
	},
	answer: func(reply any, h *driver.Hold) (driver.Answer, error) {
		n, err := numbers(reply, 4)
		if err != nil {
			return driver.Answer{}, err
		}
		a, err := answer(reply, h)
		a.More = n[2] > 0
		if a.Verdict == driver.Granted && n[3] < h.TTL.Milliseconds() {
			a.Lease = remaining(n[3])
		}
		return a, err
	},
	release: func(r request) (*transport.Call, error) {
		id, several, err := permitID(r.Owner, r.Semaphore)
		return newCall(permitRelease,
			[]key{r.at, permitsKey(r.at), semaphoreChannel(r.at)}, id, r.publish, several), err
	},
	renew: permitRenew,
	prolong: func(_ *Store, c *transport.Call, at key, lease *renewal.Item) {
		_, s, _ := driver.ParseRef(lease.Ref)
		id, several, _ := permitID(lease.Owner, s) // what is no id is no permit in use
		c.Keys = append(c.Keys, string(permitsKey(at)))
		c.Args = append(c.Args, lease.TTL.Milliseconds(), id, several)
	},
	counter: permitsCount,
	counting: func(s *Store, at key, request string) []key {
		return append(semaphore.counting(s, at, request), permitsKey(at))
	},
	trace: &trace{
		keyType: "zset",
		pattern: func(string) string { return "*" + permitsSuffix },
		locks:   permitsLocks,
	},
	rights: rights{
		flag:    "semaphore",
		scripts: []*transport.Script{permitAcquire, permitRelease, permitRenew, permitsCount},
		reached: func(of subject) (keys, channels []key) { return []key{permitsKey(of.at)}, nil },
	},
}

// permitsKey is the key of the permits in use.
func permitsKey(at key) key { return holdsTag(at) + permitsSuffix }

const permitsSuffix = ":timeout"

// permitsLocks returns the keys of the semaphores whose permits in use may be at a key: those
// of "{a}" are where those of "a" are.
func permitsLocks(permits key) []key {
	tag, ok := strings.CutSuffix(string(permits), permitsSuffix)
	if !ok || !tagged(key(tag)) {
		return nil
	}
	locks := []key{key(tag)}
	if bare, ok := strings.CutPrefix(strings.TrimSuffix(tag, "}"), "{"); ok && permitsKey(key(bare)) == permits {
		locks = append(locks, key(bare))
	}
	return locks
}

// permitID returns the first of an owner's permit ids on the server, and how many permits
// the owner has.
func permitID(owner string, s driver.Semaphore) (id string, several int64, err error) {
	const digits = 32
	raw, err := hex.DecodeString(owner[:min(digits, len(owner))])
	several = max(s.Permits, 1)
	if err != nil || len(raw) != digits/2 || several > driver.MaxSeveral {
		return "", 0, fmt.Errorf("redisstore: invalid owner of %d permits; accepted are 1 to %d, and an owner that begins with 32 hexadecimal digits", several, driver.MaxSeveral)
	}
	return string(raw), several, nil
}
