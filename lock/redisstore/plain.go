package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	plainAcquire = &transport.Script{Text: lua.File("plain_acquire.lua"), Granting: true, Common: 0, Own: 2}
	plainRelease = &transport.Script{Text: lua.File("plain_release.lua"), Common: 1, Own: 1}
	plainRenew   = transport.File("plain_renew.lua")
)

// plainMutex keeps [driver.KindMutex] in [FormatPlain]. The string is the owner. Only the
// owner's process knows how often it holds the lock, and sends absolute counts; the store
// knows only whether it holds the lock at all.
var plainMutex = kind{
	handlers: func(r request) []handler {
		// Redisson's channel, on which leasewheel's clients of both formats are notified.
		return []handler{{channelKey(r.at), askAgain}}
	},
	acquire: func(r request) (*transport.Call, error) {
		prefixes := plainAcquirePrefixes
		if !r.store.config.PlainTokens {
			prefixes = prefixes[:1]
		}
		c := newLockCall(plainAcquire, r, prefixes)
		c.Args = append(c.Args, &c.ttl, &c.owner)
		if r.store.config.PlainTokens || r.Count > 1 {
			c.Args = append(c.Args, r.Count, &c.life)
		}
		return &c.Call, nil
	},
	answer: func(reply any, h *driver.Hold) (driver.Answer, error) {
		if n, err := numbers(reply, 2); err == nil && n[0] == 5 {
			return driver.Answer{Wait: remaining(n[1]), Silent: true}, nil
		}
		return answer(reply, h)
	},
	release: func(r request) (*transport.Call, error) {
		c := newLockCall(plainRelease, r, plainReleasePrefixes)
		c.Args = append(c.Args, &c.publish, &c.owner)
		if r.Count != 0 {
			c.Args = append(c.Args, r.Count, &c.ttl)
		}
		return &c.Call, nil
	},
	renew:   plainRenew,
	prolong: prolong,
	trace:   &trace{keyType: "string", pattern: mutex.trace.pattern, locks: mutex.trace.locks},
	rights: rights{
		flag: "plain", name: "plain locks", needed: true,
		scripts: []*transport.Script{plainAcquire, plainRelease, plainRenew, announce},
		reached: mutexReaches,
	},
}

var (
	plainAcquirePrefixes = []string{yieldPrefix, tokenPrefix} // the latter for locks with tokens
	plainReleasePrefixes = []string{channelPrefix, yieldPrefix}
)
