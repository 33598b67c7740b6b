package locktest

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Data are the data of a [Server] at an instant. The zero value is no data.
type Data struct {
	taken time.Time // by the server's clock
	keys  []savedKey
}

// savedKey is one key.
type savedKey struct {
	name    string
	ttl     time.Duration // 0: none
	restore func(to *miniredis.Miniredis)
}

// Save returns a copy of the server's data. Requests that run meanwhile are in it in part: a
// synctest bubble is quiet after synctest.Wait. Consumer groups of streams and HyperLogLogs, which
// no lock uses, are left out.
func (s *Server) Save() Data {
	redis := s.current()
	d := Data{taken: s.now()}
	for _, name := range redis.Keys() {
		k := savedKey{name: name, ttl: redis.TTL(name)}
		switch redis.Type(name) {
		case "string":
			text, _ := redis.Get(name)
			k.restore = func(to *miniredis.Miniredis) { _ = to.Set(name, text) }
		case "hash":
			var pairs []string
			fields, _ := redis.HKeys(name)
			for _, field := range fields {
				pairs = append(pairs, field, redis.HGet(name, field))
			}
			k.restore = func(to *miniredis.Miniredis) { to.HSet(name, pairs...) }
		case "list":
			list, _ := redis.List(name)
			k.restore = func(to *miniredis.Miniredis) { _, _ = to.RPush(name, list...) }
		case "set":
			set, _ := redis.SMembers(name)
			k.restore = func(to *miniredis.Miniredis) { _, _ = to.SAdd(name, set...) }
		case "zset":
			sorted, _ := redis.SortedSet(name)
			k.restore = func(to *miniredis.Miniredis) {
				for member, score := range sorted {
					_, _ = to.ZAdd(name, score, member)
				}
			}
		case "stream":
			entries, _ := redis.Stream(name)
			k.restore = func(to *miniredis.Miniredis) {
				for _, e := range entries {
					_, _ = to.XAdd(name, e.ID, e.Values)
				}
			}
		default:
			continue
		}
		d.keys = append(d.keys, k)
	}
	return d
}

// load stores the data in a new server. Keys whose time is over by now are left out.
func (d Data) load(redis *miniredis.Miniredis, now time.Time) {
	passed := max(now.Sub(d.taken), 0)
	for _, k := range d.keys {
		if k.ttl > 0 && k.ttl <= passed {
			continue
		}
		k.restore(redis)
		if k.ttl > 0 {
			redis.SetTTL(k.name, k.ttl-passed)
		}
	}
}

// Restart ends the server and starts it again with the given data: none, those of a [Server.Save]
// just before, or old ones. All connections break. TTLs have run on meanwhile.
func (s *Server) Restart(d Data) {
	fresh := miniredis.NewMiniRedis()
	fresh.ClockTTL(true)
	s.mu.Lock()
	old := s.redis
	s.redis = fresh
	wires := s.wires
	s.wires = make(map[*wire]struct{})
	if s.steered {
		fresh.SetTime(s.nowLocked())
	}
	d.load(fresh, s.nowLocked())
	s.mu.Unlock()
	for w := range wires {
		_ = w.Close()
	}
	old.Close()
}

// StepClock sets the server's clock forward by d, or back if d is negative. Keys whose TTL is
// over by the new time end. A step back leaves TTLs as they are, where those of a real server
// grow by as much.
func (s *Server) StepClock(d time.Duration) {
	s.mu.Lock()
	s.base, s.since, s.steered = s.nowLocked().Add(d), time.Now(), true
	s.mu.Unlock()
	s.tick()
}

// DriftClock makes the server's clock fast by a part of its rate, 0.01 for one in a hundred, or
// slow if that is negative.
func (s *Server) DriftClock(rate float64) {
	s.mu.Lock()
	s.base, s.since, s.steered, s.drift = s.nowLocked(), time.Now(), true, rate
	s.mu.Unlock()
	s.tick()
}

// now is the time by the server's clock.
func (s *Server) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked()
}

func (s *Server) nowLocked() time.Time {
	if !s.steered {
		return time.Now().UTC()
	}
	passed := time.Since(s.since)
	return s.base.Add(passed + time.Duration(float64(passed)*s.drift)).UTC()
}

// tick lets the server read its clock, if that is not the test's. It is called before each
// request.
func (s *Server) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steered {
		s.redis.SetTime(s.nowLocked())
	}
}

// current is the server that runs, with its clock read.
func (s *Server) current() *miniredis.Miniredis {
	s.tick()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redis
}

// Fields returns the fields of the hash at a key.
func (s *Server) Fields(key string) []string {
	fields, _ := s.current().HKeys(key)
	return fields
}

// Channels returns the channels that have subscribers.
func (s *Server) Channels() []string { return s.current().PubSubChannels("*") }

// TTLs returns the time that each key has left, 0 without a limit.
func (s *Server) TTLs() map[string]time.Duration {
	redis, ttls := s.current(), make(map[string]time.Duration)
	for _, key := range redis.Keys() {
		ttls[key] = redis.TTL(key)
	}
	return ttls
}
