package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// The promises that findings name.
const (
	oneHolder = "one holder"
	acquired  = "a free lock can be acquired"
	renewed   = "a lease is renewed in time"
)

// judgeInfo compares what the server reports with what locks need.
func (e *examination) judgeInfo() {
	i := e.info
	e.server.ID, e.server.Role = i.word("run_id"), i.role()
	var old bool
	if e.server.Version, old = i.product(); old {
		e.found(driver.SeverityError, "version", e.server.Version+" is older than Redis 6.2",
			acquired+": the scripts use commands that it lacks, so acquisitions are refused", "upgrade to Redis 7 or newer; 6.2 is the oldest that works")
	}
	e.judgeRole()
	if !i.has("redis_version") {
		e.unexamined("info", "the server does not answer INFO to this user, so version, eviction, memory, persistence and replicas are known in part or not at all",
			"give the user +info for the check, or look them up in the settings of the service")
	} else {
		e.judgeEviction()
		e.judgePersistence()
		e.judgeConnections()
		e.judgeReplicas()
		e.judgeFork()
	}
	if !i.configure {
		e.unexamined("config", "the server does not answer CONFIG GET to this user, so appendfsync, timeout and tcp-keepalive are not known",
			"give the user +config|get for the check, or look them up in the settings of the service")
	} else {
		e.judgeConfig()
	}
	if len(i.odd) > 0 {
		e.unexamined("info", "values that make no sense: "+excerptAll(i.odd), "find out what answers in place of the server, such as a proxy")
	}
}

func (e *examination) judgeRole() {
	switch role, mode := e.info.role(), e.info.mode(); {
	case mode == "sentinel":
		e.found(driver.SeverityError, "role", "it is a sentinel, which stores no locks", acquired+": every acquisition is refused",
			"name the sentinels in a URL redis-sentinel://…?master_name=…, or use a client that asks them")
	case role == "replica" && !e.node.replica:
		e.found(driver.SeverityError, "role", "it is a replica, which refuses writes", acquired+": every acquisition is refused",
			"connect to the master, through redis-sentinel:// or redis-cluster:// so that a failover is followed")
	case mode == "cluster" && !e.subject.Cluster:
		e.found(driver.SeverityError, "role", "it is a node of a cluster, and the client is for one server", acquired+": those in the slots of other nodes are refused",
			"connect by redis-cluster://, or with a *redis.ClusterClient")
	}
}

const (
	// fullMemory is the share of a limit, in percent, from which on it is almost reached.
	fullMemory = 90
	// policyOfLocks is the eviction policy that evicts nothing.
	policyOfLocks = "noeviction"
)

func (e *examination) judgeEviction() {
	limit, limited := e.info.number("maxmemory")
	used, known := e.info.number("used_memory")
	policy := e.info.word("maxmemory_policy")
	limited = limited && limit > 0
	const advice = "CONFIG SET maxmemory-policy noeviction, and in its configuration file; data that may be evicted belong on another server"
	switch {
	case policy == "":
		e.unexamined("eviction", "the server does not report maxmemory_policy", "make sure that it is noeviction")
	case policy != policyOfLocks && limited:
		e.found(driver.SeverityError, "eviction", fmt.Sprintf("maxmemory-policy is %s, with a maxmemory of %s", policy, bytes(limit)),
			oneHolder+": an evicted lock is free for others while its holder works", advice)
	case policy != policyOfLocks:
		e.found(driver.SeverityWarning, "eviction", fmt.Sprintf("maxmemory-policy is %s; no maxmemory is set, so nothing is evicted yet", policy),
			oneHolder+": with a maxmemory, an evicted lock is free for others while its holder works", advice)
	}
	if !limited || !known || float64(used)/float64(limit) < fullMemory/100.0 {
		return
	}
	e.found(driver.SeverityWarning, "memory", fmt.Sprintf("%s of %s are in use", bytes(used), bytes(limit)),
		acquired+": at the limit acquisitions are refused; held locks can still be renewed and released",
		"raise maxmemory, or find out what fills it")
}

// bytes returns a number of bytes for people.
func bytes(n int64) string {
	const unit = 1 << 10
	if n < 10*unit {
		return fmt.Sprintf("%d B", n)
	}
	size, suffix := float64(n)/unit, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if size < 10*unit {
			break
		}
		size, suffix = size/unit, next
	}
	return fmt.Sprintf("%.0f %s", size, suffix)
}

func (e *examination) judgePersistence() {
	if aof, known := e.info.number("aof_enabled"); known && aof == 0 {
		e.found(driver.SeverityWarning, "persistence", "appendonly is off",
			oneHolder+": after a restart the server has forgotten the locks since its last snapshot, or all, and grants them again while their holders work; permits, semaphores and delay queues lose their numbers and messages",
			"set appendonly yes; or keep clients from a restarted server for the longest TTL, and compare fencing tokens")
	}
	if status := e.info.word("aof_last_write_status"); status != "" && status != "ok" {
		e.found(driver.SeverityError, "persistence", "the last write to the append-only file failed", acquired+": the server refuses writes (MISCONF)",
			"look at its log; often the disk is full")
	}
	if status := e.info.word("rdb_last_bgsave_status"); status != "" && status != "ok" {
		e.found(driver.SeverityWarning, "persistence", "the last snapshot failed", acquired+": unless stop-writes-on-bgsave-error is no, the server refuses writes (MISCONF)",
			"look at its log; often the disk is full")
	}
}

func (e *examination) judgeConnections() {
	clients, known := e.info.number("connected_clients")
	limit, limited := e.info.number("maxclients")
	if known && limited && limit > 0 && float64(clients)/float64(limit) >= fullMemory/100.0 {
		e.found(driver.SeverityWarning, "connections", fmt.Sprintf("%d of %d connections are in use", clients, limit),
			renewed+": at the limit new connections are refused, also those for renewals", "raise maxclients, or lower the pools of the clients")
	}
}

// longLag is how far a replica may be behind its master.
const longLag = 10 * time.Second

func (e *examination) judgeReplicas() {
	if e.info.role() != "master" {
		return
	}
	list, count, known := e.info.replicas()
	if !known {
		e.unexamined("replicas", "the server does not report its replicas", "look them up in the settings of the service")
		return
	}
	followed := e.subject.Replica != nil || e.subject.Cluster // by failover
	want := int64(e.subject.Replicas)
	var online int64
	for _, r := range list {
		switch {
		case !r.online:
			e.found(driver.SeverityWarning, "replicas", "the replica "+r.address+" is not connected, or still loads", acquired+": if the master fails, this replica cannot take its place",
				"look at the replica's log")
			continue
		case r.lag > longLag:
			e.found(driver.SeverityWarning, "replicas", fmt.Sprintf("the replica %s is %v behind", r.address, r.lag), oneHolder+": a failover to it loses the locks granted since",
				"look at the replica's log and at the network")
		}
		online++
	}
	switch {
	case count <= mostReplicas && want > online:
		e.found(driver.SeverityError, "replicas", fmt.Sprintf("%d replicas are connected, and Config.Replicas is %d", online, want),
			acquired+": each grant waits for replicas that do not exist, and fails", "bring the replicas back, or lower Config.Replicas")
	case count == 0 && followed:
		e.found(driver.SeverityWarning, "replicas", "it has no replica", acquired+": if it fails, nothing takes its place, and no lock of it is granted until it is back", "add a replica")
	}
	if count > 0 && want == 0 {
		e.found(driver.SeverityNote, "replicas", "replication is asynchronous",
			oneHolder+": a failover loses what the promoted replica has not received, and grants those locks again",
			"set Config.Replicas, which makes this rare; or use package quorum; compare fencing tokens in any case (docs/reliability.md)")
	}
	if count > 0 && e.subject.Replica != nil && !e.info.has("min_slaves_good_slaves") {
		e.found(driver.SeverityWarning, "replicas", "min-replicas-to-write is 0",
			oneHolder+": a master that is cut off from its sentinels goes on granting, beside the promoted one",
			"set min-replicas-to-write 1 and min-replicas-max-lag 10")
	}
}

// part returns the TTL's part of this size.
func (e *examination) part(of time.Duration) time.Duration { return e.options.TTL / of }

// The parts of a TTL that a pause may take. A renewal is sent when a third has passed.
const (
	slowPart  = 10
	worstPart = 3
)

func (e *examination) judgeFork() {
	micros, known := e.info.number("latest_fork_usec")
	if !known || micros > maxMicros {
		return
	}
	if took := time.Duration(micros) * time.Microsecond; took >= e.part(slowPart) {
		e.found(driver.SeverityWarning, "latency", fmt.Sprintf("the latest fork stopped the server for %v; the TTL is %v", round(took), e.options.TTL),
			renewed+": while the server forks it answers nothing", "give it less memory, disable transparent huge pages, or use a longer TTL")
	}
}

// maxMicros is the longest time in µs that is read, some thousand hours.
const maxMicros = 1 << 42

// shortTimeout is the shortest time after which a server may close idle connections.
const shortTimeout = 60

func (e *examination) judgeConfig() {
	if fsync := e.info.word("appendfsync"); fsync != "" && fsync != "always" {
		if aof, _ := e.info.number("aof_enabled"); aof == 1 {
			severity, lost := driver.SeverityNote, "two seconds"
			if fsync != "everysec" {
				severity, lost = driver.SeverityWarning, "30 seconds"
			}
			e.found(severity, "persistence", "appendfsync is "+fsync,
				oneHolder+": if its machine fails, the server has forgotten the locks of the last "+lost+" or so; a restart of the process alone loses none",
				"set appendfsync always; or keep clients from a machine that failed for the longest TTL")
		}
	}
	if idle, known := e.info.number("timeout"); known && idle > 0 && idle < shortTimeout {
		e.found(driver.SeverityNote, "connections", fmt.Sprintf("timeout is %d: the server closes connections that are idle for %d s", idle, idle),
			"none: a request that meets such a connection is sent again, and takes longer", "set timeout 0, or ConnMaxIdleTime of the client to less")
	}
	if keepalive, known := e.info.number("tcp-keepalive"); known && keepalive == 0 {
		e.found(driver.SeverityNote, "connections", "tcp-keepalive is 0",
			acquired+": a waiter whose machine has vanished counts as subscribed, and a lock granted to it stays taken until its provisional TTL ends", "set tcp-keepalive 300")
	}
}

// farClock is a difference between the clocks that is worth a finding.
const farClock = time.Second

// measure measures round trips and the server's clock.
func (e *examination) measure(ctx context.Context) error {
	readings, err := measure(ctx, e.node.Client)
	var refused redis.Error
	switch {
	case errors.As(err, &refused):
		e.unexamined("clock", "the server refuses TIME: "+excerpt(refused.Error()), "give the user +time, which locks need as well")
		return nil
	case fault.Silent(err):
		return err
	case err != nil:
		e.unexamined("clock", excerpt(err.Error()), "set the server's clock, and keep it synchronized")
		return nil
	}
	e.server.RoundTrip, e.server.WorstRoundTrip = middle(readings)
	e.server.Ahead, e.server.AheadError = difference(readings, e.base)
	e.judgeLatency()
	e.judgeClock(readings)
	return nil
}

func (e *examination) judgeLatency() {
	worst := e.server.WorstRoundTrip
	found := fmt.Sprintf("a round trip took %v, the median of %d is %v; the TTL is %v", round(worst), roundTrips, round(e.server.RoundTrip), e.options.TTL)
	const advice = "use a TTL of at least ten times the worst round trip, or find out what delays requests"
	switch {
	case worst >= e.part(worstPart):
		e.found(driver.SeverityError, "latency", found, renewed+": a renewal is sent when a third of the TTL has passed, and could not be repeated", advice)
	case worst >= e.part(slowPart):
		e.found(driver.SeverityWarning, "latency", found, renewed+": few repetitions of a renewal fit before the lease ends", advice)
	}
}

// judgeClock compares the server's clock with this process's, and with itself.
func (e *examination) judgeClock(readings []transport.Reading) {
	ahead, give := e.server.Ahead, e.server.AheadError
	if ahead.Abs()-give > farClock {
		e.found(driver.SeverityWarning, "clock", fmt.Sprintf("the server's clock is %s this process's", apart(ahead)),
			"none as long as it stays so; when one of the clocks is corrected by a step, leases may end early or late ("+oneHolder+"), and a server behind other servers makes smaller fencing tokens after a move",
			"synchronize both clocks, by slewing")
	}
	last := readings[len(readings)-1]
	by := step(readings[0], last, e.base)
	if by == 0 && !e.node.replica {
		if earlier, ok := e.subject.LastReading(e.node.Address, last); ok {
			by = step(earlier, last, e.base)
		}
	}
	if by != 0 {
		e.found(driver.SeverityError, "clock", fmt.Sprintf("the server's clock was set: it is %s where it would be", apart(by)),
			oneHolder+": a step forward ends leases while their holders work, a step back prolongs them",
			"synchronize the server's clock by slewing; after a step let the longest TTL pass")
	}
}

// compareReplicas compares the replicas' clocks with the master's.
func compareReplicas(all []*examination) {
	for _, e := range all[1:] {
		if by, differ := e.aheadOf(all[0]); differ {
			e.found(driver.SeverityWarning, "clock", fmt.Sprintf("the replica's clock is %s the master's", apart(by)),
				oneHolder+": after a failover to it leases, permits and messages of delay queues end, or are due, earlier or later by the difference",
				"synchronize the clocks of all servers, by slewing")
		}
	}
}

// compareMasters compares the clocks of a cluster's masters with the one that is furthest
// behind.
func compareMasters(all []*examination) {
	var behind *examination
	for _, e := range all {
		if e.knowsClock() && (behind == nil || e.server.Ahead < behind.server.Ahead) {
			behind = e
		}
	}
	for _, e := range all {
		if by, differ := e.aheadOf(behind); differ {
			e.found(driver.SeverityWarning, "clock", fmt.Sprintf("the master's clock is %s that of the master %s", apart(by), behind.node.Address),
				oneHolder+": permits, and messages of delay queues, whose slot moves here from there end, or are due, earlier by the difference; other locks keep their time, but not if CLUSTER MIGRATESLOTS moves it",
				"synchronize the clocks of all servers, by slewing, before a slot is moved")
		}
	}
}

// knowsClock reports whether the server's clock was read.
func (e *examination) knowsClock() bool { return e.err == nil && e.server.AheadError > 0 }

// aheadOf returns by how much the server's clock is ahead of another's. differ is set if both
// are known, and the difference is certainly more than the margin of a lease.
func (e *examination) aheadOf(other *examination) (by time.Duration, differ bool) {
	if !e.knowsClock() || !other.knowsClock() {
		return 0, false
	}
	by = e.server.Ahead - other.server.Ahead
	return by, by.Abs()-e.server.AheadError-other.server.AheadError > e.part(100)+2*time.Millisecond
}

// apart describes a difference between clocks.
func apart(by time.Duration) string {
	if by < 0 {
		return fmt.Sprintf("%v behind", round(-by))
	}
	return fmt.Sprintf("%v ahead of", round(by))
}

// round shortens a duration to what people read.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d.Round(time.Microsecond)
}

const (
	slowEntries = 10             // of the slow log that are read
	slowAge     = 24 * time.Hour // of the oldest that counts
)

// readSlowLog looks for commands that stopped the server.
func (e *examination) readSlowLog(ctx context.Context) error {
	reply, err := e.node.Client.Do(ctx, "slowlog", "get", slowEntries).Result()
	if err = fault.Classify(err); fault.Silent(err) {
		return err
	}
	entries, _ := reply.([]any)
	var worst time.Duration
	var command string
	for _, entry := range entries[:min(len(entries), slowEntries)] {
		fields, _ := entry.([]any)
		if len(fields) < 4 {
			continue
		}
		at, _ := fields[1].(int64)
		micros, _ := fields[2].(int64)
		words, _ := fields[3].([]any)
		recent := at > e.base.Add(-slowAge).Unix()
		took := time.Duration(micros) * time.Microsecond
		if !recent || micros < 0 || micros > maxMicros || took <= worst {
			continue
		}
		worst, command = took, "a command"
		if len(words) > 0 {
			if word, ok := words[0].(string); ok && simpleWord.MatchString(word) {
				command = word
			}
		}
	}
	if worst >= e.part(slowPart) {
		e.found(driver.SeverityWarning, "latency", fmt.Sprintf("%s stopped the server for %v in the last day; the TTL is %v", command, round(worst), e.options.TTL),
			renewed+": meanwhile the server answers nothing", "find its caller by SLOWLOG GET, and move slow commands to another server; or use a longer TTL")
	}
	return nil
}

// connections is how many connections are compared.
const connections = 3

// compareConnections looks for a balancer that leads connections to different servers.
func (e *examination) compareConnections(ctx context.Context) error {
	if e.server.ID == "" || e.node.Client.Options().PoolSize < connections {
		return nil
	}
	ids := map[string]bool{e.server.ID: true}
	for range connections {
		conn := e.node.Client.Conn()
		defer conn.Close() // at the end, so that each is another one
		text, err := conn.Info(ctx, "server").Result()
		if err = fault.Classify(err); fault.Silent(err) {
			return err
		}
		other := serverInfo{fields: map[string]string{}}
		other.addInfo(text)
		if id := other.word("run_id"); id != "" {
			ids[id] = true
		}
	}
	if len(ids) > 1 {
		e.found(driver.SeverityError, "proxy", fmt.Sprintf("connections to one address lead to %d servers", len(ids)),
			oneHolder+": each of them grants the same lock, or a failover is under way", "connect to one server, or use a cluster, sentinels or a quorum")
	}
	return nil
}

// togetherKeys is how many keys compareKeys writes at once. A proxy in front of two servers
// would send all to one in one of 2,000 checks.
const togetherKeys = 12

var (
	spreadWrite  = lua.File("spread_write.lua")
	spreadRemove = lua.File("spread_remove.lua")
)

// compareKeys looks for a proxy that spreads keys over servers: requests for several locks
// share a script, which such a proxy sends where the first key is. It writes keys that no
// client uses in one script, and looks for each in a script of its own.
func (e *examination) compareKeys(ctx context.Context) error {
	spread := func(f driver.Finding) bool { return f.Topic == "proxy" }
	if e.subject.Cluster || !e.usable || slices.ContainsFunc(e.findings, spread) {
		return nil
	}
	keys := e.subject.UnusedKeys(cmp.Or(e.options.Name, checkName), e.node.Address, togetherKeys)
	if keys == nil {
		keys = e.subject.UnusedKeys(checkName, e.node.Address, togetherKeys)
	}
	if keys == nil {
		return nil // Config.Prefix or MapName gives all locks one hash tag
	}
	together := []any{len(keys)}
	for _, at := range keys {
		together = append(together, at)
	}
	err := fault.Classify(e.node.Client.Do(ctx, append([]any{"eval", spreadWrite().Source}, together...)...).Err())
	if errors.Is(err, fault.ErrNoPermission) {
		e.unexamined("proxy", "the user may only use names with one hash tag, which a proxy that spreads keys would keep together", "check as a user with more rights")
		return nil
	}
	if !errors.Is(err, fault.ErrCrossSlot) && e.refusesWrites(err) {
		return nil
	}
	if refused, ok := errors.AsType[redis.Error](err); ok {
		e.found(driver.SeverityNote, "proxy", "a script for several locks is refused: "+excerpt(refused.Error()), "none: each request has a script of its own, which costs the server more",
			"connect without a proxy, or through one that passes scripts on; to a cluster by redis-cluster://")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.subject.Limits.Message)
		defer cancel()
		_ = e.node.Client.Do(rest, append([]any{"eval", spreadRemove().Source}, together...)...).Err() // else they end by themselves
	}()
	removed, err := e.removeEach(ctx, keys)
	if err == nil && removed < len(keys) {
		e.found(driver.SeverityError, "proxy", fmt.Sprintf("of %d keys that a script wrote, %d are where each is found by itself: something spreads keys over servers", len(keys), removed),
			oneHolder+": requests for several locks share a script, so a lock is granted on two servers", "connect to one server, or use a cluster, sentinels or a quorum")
	}
	return err
}

// removeEach removes keys, each by a script of its own, and returns how many there were.
func (e *examination) removeEach(ctx context.Context, keys []string) (removed int, err error) {
	pipe := e.node.Client.Pipeline()
	replies := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		replies[i] = pipe.Do(ctx, "eval", spreadRemove().Source, 1, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fault.Classify(err)
	}
	for _, reply := range replies {
		n, err := reply.Int()
		if err != nil {
			return 0, fault.Unexpected(reply.Val())
		}
		removed += n
	}
	return removed, nil
}
