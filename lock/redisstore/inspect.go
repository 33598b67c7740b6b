package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	inspectLock = transport.File("inspect.lua")
	forceLock   = transport.File("force.lua")
)

// Their scripts share functions that only the other one calls, so the commands are listed.
var (
	inspecting = rights{
		flag: "inspect", name: "leasewheel ls, watch and inspect, of locks of every kind",
		commands: strings.Fields("scan hmget hstrlen type hlen hrandfield lrange llen zscore getrange strlen zrange zcard zcount zrangebyscore"),
		reached: func(of subject) (keys, channels []key) {
			for _, k := range []*kind{&fair, &read, &permit} {
				more, _ := k.rights.reached(of)
				keys = append(keys, more...)
			}
			return keys, []key{readWriteChannel(of.at)}
		},
	}
	forcing = rights{
		flag: "force", name: "leasewheel unlock --force; with what --inspect has",
		commands: strings.Fields("del lindex lpop unlink zrem zremrangebyrank"),
		reached: func(of subject) (keys, channels []key) {
			_, channels = fair.rights.reached(of)
			return nil, channels
		},
	}
)

var _ driver.Inspector = (*Store)(nil)

// Inspect describes one lock. One round trip reads its holders and waiters, a second one
// their clients.
func (s *Store) Inspect(ctx context.Context, name string, as driver.Kind) (driver.Info, error) {
	r, _, err := s.request(ctx, as, name)
	if err != nil {
		return driver.Info{}, err
	}
	return info(ctx, r, name, s.format.inspect(r, as, true))
}

// ForceRelease frees a lock in one script, which also publishes the release as that kind
// of lock does.
func (s *Store) ForceRelease(ctx context.Context, name string) (driver.Info, error) {
	r, _, err := s.request(ctx, driver.KindMutex, name)
	if err != nil {
		return driver.Info{}, err
	}
	return info(ctx, r, name, s.format.force(r))
}

// info makes an Info from a script's reply and adds the clients' records. Without them it
// still returns the rest.
func info(ctx context.Context, r request, name string, c *transport.Call) (driver.Info, error) {
	reply, err := r.store.transport.Run(ctx, c)
	if err != nil {
		return driver.Info{}, err
	}
	info, err := describe(name, reply)
	if err == nil {
		identifyClients(ctx, r.store, []*driver.Info{&info}, new(sync.Map))
	}
	return info, err
}

// inspectRedisson describes a lock of any kind. If the caller asked for it by name, its
// holder's owner may have any form.
func inspectRedisson(r request, as driver.Kind, named bool) *transport.Call {
	mode, channel := "", semaphoreChannel(r.at)
	if k := kinds[as]; k.counter != nil {
		mode, channel = as.Word(), k.counting(r.store, r.at, "")[1]
	}
	return newCall(inspectLock,
		slices.Insert(lockKeys(r.at), 0, permitsKey(r.at)),
		driver.MaxTold, r.publish, string(waitChannel(r.at)), mode, string(channel), named)
}

func forceRedisson(r request) *transport.Call {
	return newCall(forceLock,
		slices.Insert(lockKeys(r.at), 0, channelKey(r.at), readWriteChannel(r.at)),
		driver.MaxTold, r.publish, string(waitChannel(r.at)))
}

// lockKeys are the keys of any kind of lock that is a hash, in the order of inspect_lock.lua.
func lockKeys(at key) []key {
	return []key{
		at, tokenKey(at), queueKey(at), timeoutsKey(at), placesKey(at), waitQueueKey(at),
	}
}

// describe makes an Info from a script's reply.
func describe(name string, reply any) (driver.Info, error) {
	info := driver.Info{Name: name}
	fields, _ := reply.([]any)
	r := replyReader{fields: fields}
	key, left, mode := r.text(), r.number(), r.text()
	info.HolderCount = r.number()
	holders := r.list()
	info.WaiterCount = r.number()
	waiters := r.list()
	token, count := r.text(), r.text()
	if r.failed || len(holders)%3 != 0 || len(waiters)%3 != 0 {
		return driver.Info{}, fault.Unexpected(reply)
	}
	info.TTL = remaining(left)
	info.Token = integer(token)
	if key != "lock" && key != "none" {
		info.Foreign = key
	}
	info.Count, info.Counted = integer(count), count != ""
	for k := range kinds {
		if as := driver.Kind(k); as.Word() == mode {
			info.Kind = as
		}
	}
	for h := range slices.Chunk(holders, 3) {
		if info.Kind == driver.KindPermit {
			info.Holders = append(info.Holders, permitHolder(h))
		} else {
			info.Holders = append(info.Holders, holder(h))
		}
	}
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int {
		if a.Owner == b.Owner && a.Write {
			return -1
		}
		return cmp.Compare(a.Owner, b.Owner)
	})
	for w := range slices.Chunk(waiters, 3) {
		info.Waiters = append(info.Waiters, waiter(w))
	}
	if info.Kind != driver.KindPermit { // their ids are digits
		sanitize(&info)
	}
	return info, nil
}

// holder parses one holder: its field of the lock's hash, its number of holds, and the ms
// left.
func holder(fields []string) driver.Holder {
	owner, write := strings.CutSuffix(fields[0], ":write")
	return driver.Holder{
		Owner: owner, Write: write, Holds: integer(fields[1]), TTL: remaining(integer(fields[2])), Client: driver.Client{ID: driver.ClientOf(owner)},
	}
}

// permitHolder parses a permit in use.
func permitHolder(fields []string) driver.Holder {
	owner := hex.EncodeToString([]byte(fields[0]))
	return driver.Holder{Owner: owner, Holds: 1, TTL: remaining(integer(fields[2])), Client: driver.Client{ID: driver.ClientOf(owner)}}
}

// waiter parses one waiter: its owner, the ms for which its place is kept, and the µs of
// its arrival.
func waiter(fields []string) driver.Waiter {
	w := driver.Waiter{Owner: fields[0], TTL: time.Duration(integer(fields[1])) * time.Millisecond, Client: driver.Client{ID: driver.ClientOf(fields[0])}}
	if since := integer(fields[2]); since > 0 {
		w.Since = time.UnixMicro(since)
	}
	return w
}

// integer parses a number from the server, with 0 for anything else.
func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// recordsTimeout bounds the search for the records of clients, any of which may be on a node
// that does not answer.
const recordsTimeout = time.Second

// identifyClients adds the records that the clients have announced, as far as their nodes
// answer. A node that does not is added to mute; those in mute are not asked.
func identifyClients(ctx context.Context, s *Store, infos []*driver.Info, mute *sync.Map) {
	records, nodes := make(map[string]*redis.SliceCmd), make(map[string]redis.Pipeliner)
	eachClient(infos, func(_ *driver.Info, _ *driver.Holder, c *driver.Client) {
		at := clientKey(c.ID)
		node := s.transport.NodeOf(string(at))
		if _, skip := mute.Load(node); skip || records[c.ID] != nil {
			return
		}
		if nodes[node] == nil {
			nodes[node] = s.client.Pipeline()
		}
		records[c.ID] = nodes[node].HMGet(ctx, string(at), "host", "process", "pid", "since", "label")
	})
	ctx, cancel := context.WithTimeout(ctx, s.recordsTimeout)
	defer cancel()
	var work sync.WaitGroup
	for node, pipe := range nodes {
		work.Go(func() {
			err := fault.Protect(func() error {
				_, err := pipe.Exec(ctx)
				return err
			})
			if fault.Silent(fault.Classify(err)) {
				mute.Store(node, nil)
			}
		})
	}
	work.Wait()
	eachClient(infos, func(info *driver.Info, h *driver.Holder, c *driver.Client) {
		record := records[c.ID]
		known := record != nil && announced(c, record.Val())
		if permit := info.Kind == driver.KindPermit; h == nil || permit || !known || info.Kind == driver.KindRead {
			if permit && !known {
				*c = driver.Client{} // the id may be another library's
			}
			return
		}
		// For a leasewheel client the token is the instant of the grant.
		if info.Token >= leastInstant {
			h.Since = time.UnixMicro(info.Token)
		}
	})
}

// leastInstant is the smallest token that counts as an instant, in 1973. Redisson's
// tokens begin at 1.
const leastInstant = 100_000_000_000_000

// eachClient calls f for every client of the locks that may have announced itself. h is
// nil for a waiter.
func eachClient(infos []*driver.Info, f func(info *driver.Info, h *driver.Holder, c *driver.Client)) {
	for _, info := range infos {
		for i := range info.Holders {
			if h := &info.Holders[i]; h.Client.ID != "" {
				f(info, h, &h.Client)
			}
		}
		for i := range info.Waiters {
			f(info, nil, &info.Waiters[i].Client)
		}
	}
}

// announced fills in a client from its record. It reports whether the record is one of
// Announce's.
func announced(c *driver.Client, record []any) bool {
	r := replyReader{fields: record}
	host, process, pid, since := r.text(), r.text(), r.text(), r.text()
	number, err := strconv.Atoi(pid)
	at, err2 := time.Parse(time.RFC3339, since)
	label := r.optional()
	if r.failed || err != nil || err2 != nil || !printable(host) || !printable(process) || !printable(label) {
		return false
	}
	c.Label = label
	c.Host, c.Process, c.PID, c.Since = host, process, number, at
	return true
}
