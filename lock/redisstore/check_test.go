package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// longTTL is a TTL that no round trip on a busy machine comes near.
const longTTL = 10 * time.Minute

// durable configures a server without findings.
func durable() redistest.Config {
	return redistest.Config{AOF: true, Directives: []string{"appendfsync always"}}
}

// check examines the servers of a client.
func check(t *testing.T, client redis.UniversalClient, c redisstore.Config, o driver.CheckOptions) driver.Report {
	t.Helper()
	return checkWithin(t, answersWithin, client, c, o)
}

// checkWithin is check with a limit for each message.
func checkWithin(t *testing.T, message time.Duration, client redis.UniversalClient, c redisstore.Config, o driver.CheckOptions) driver.Report {
	t.Helper()
	store, err := redisstore.New(client, c)
	require.NoError(t, err)
	defer store.Close()
	store.SetCheckTimeout(answersWithin, message)
	report, err := store.Check(t.Context(), o)
	require.NoError(t, err)
	for _, f := range report.Findings {
		requireComplete(t, f)
	}
	return report
}

// requireComplete asserts that a finding has all its parts, short and printable.
func requireComplete(t *testing.T, f driver.Finding) {
	t.Helper()
	for _, part := range []string{f.Severity.String(), f.Topic, f.Found, f.Promise, f.Advice} {
		require.NotEmpty(t, part, "%+v", f)
		require.Less(t, len(part), 2000, "%+v", f)
		require.Equal(t, -1, strings.IndexFunc(part, unicode.IsControl), "%q", part)
	}
}

// about returns the findings of a topic.
func about(r driver.Report, topic string) (found []driver.Finding) {
	for _, f := range r.Findings {
		if f.Topic == topic {
			found = append(found, f)
		}
	}
	return found
}

// onlyFinding returns the one finding of a report.
func onlyFinding(t *testing.T, r driver.Report) driver.Finding {
	t.Helper()
	require.Len(t, r.Findings, 1, "%+v", r.Findings)
	return r.Findings[0]
}

// A healthy server has no findings, and the check leaves nothing on it.
func TestCheckFindsNothingOnAHealthyServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable())
	client := server.Client(t)
	for name, c := range map[string]redisstore.Config{
		"redisson": {}, "plain": {Format: redisstore.FormatPlain}, "prefix": {Prefix: "shop:"},
		"mapped": {MapName: func(name string) string { return "m-" + name }, UnmapName: func(key string) (string, bool) { return strings.CutPrefix(key, "m-") }},
	} {
		for _, o := range []driver.CheckOptions{{TTL: longTTL}, {TTL: longTTL, Name: "orders:"}, {TTL: longTTL, Name: "{user:7}:cart"}} {
			report := check(t, client, c, o)
			assert.Empty(t, report.Findings, name)
			require.Len(t, report.Servers, 1)
			s := report.Servers[0]
			_, address := server.Addr()
			assert.Equal(t, address, s.Address)
			assert.Regexp(t, `^(redis|valkey) \d+\.\d+\.\d+$`, s.Version)
			assert.Equal(t, "master", s.Role)
			assert.Regexp(t, `^[0-9a-f]{40}$`, s.ID)
			assert.Positive(t, s.RoundTrip)
			assert.GreaterOrEqual(t, s.WorstRoundTrip, s.RoundTrip)
			assert.Positive(t, s.AheadError)
			assert.Less(t, s.Ahead.Abs(), time.Second+s.AheadError)
		}
	}
	assert.Zero(t, client.DBSize(t.Context()).Val(), "%v", client.Keys(t.Context(), "*").Val())
	assert.Empty(t, client.PubSubChannels(t.Context(), "*").Val())
}

// Each fault of a server's settings or state is found, with the promise that it breaks.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	const e, w, n = driver.SeverityError, driver.SeverityWarning, driver.SeverityNote
	for _, test := range []struct {
		name    string
		provoke string // commands, by line
		config  redisstore.Config
		want    driver.Severity
		topic   string
		found   string
		promise string
	}{
		{"a policy that evicts, some day", "config set maxmemory-policy allkeys-lru", redisstore.Config{}, w, "eviction", "maxmemory-policy is allkeys-lru", "one holder"},
		{"a policy that evicts", "config set maxmemory 100mb\nconfig set maxmemory-policy volatile-ttl", redisstore.Config{}, e, "eviction", "volatile-ttl, with a maxmemory of 100 MiB", "one holder"},
		{"no append-only file", "config set appendonly no", redisstore.Config{}, w, "persistence", "appendonly is off", "one holder"},
		{"a file written each second", "config set appendfsync everysec", redisstore.Config{}, n, "persistence", "appendfsync is everysec", "one holder"},
		{"a file written sometime", "config set appendfsync no", redisstore.Config{}, w, "persistence", "appendfsync is no", "one holder"},
		{"a short idle timeout", "config set timeout 5", redisstore.Config{}, n, "connections", "timeout is 5", "none"},
		{"no keepalive", "config set tcp-keepalive 0", redisstore.Config{}, n, "connections", "tcp-keepalive is 0", "a free lock can be acquired"},
		{"too few replicas to write", "config set min-replicas-to-write 1", redisstore.Config{}, e, "writes", "too few replicas", "a free lock can be acquired"},
		{"too few replicas for the store", "ping", redisstore.Config{Replicas: 1}, e, "replicas", "0 replicas are connected, and Config.Replicas is 1", "a free lock can be acquired"},
		{"a replica", "replicaof 127.0.0.1 1", redisstore.Config{}, e, "role", "it is a replica", "a free lock can be acquired"},
		{"a replica that answers only with its master", "config set replica-serve-stale-data no\nreplicaof 127.0.0.1 1", redisstore.Config{}, e, "role", "it is a replica", "a free lock can be acquired"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, durable())
			client := server.Client(t)
			o := driver.CheckOptions{TTL: longTTL}
			for line := range strings.Lines(test.provoke) {
				var args []any
				for word := range strings.FieldsSeq(line) {
					args = append(args, word)
				}
				require.NoError(t, client.Do(t.Context(), args...).Err(), line)
			}
			f := onlyFinding(t, check(t, client, test.config, o))
			assert.Equal(t, test.want, f.Severity, "%+v", f)
			assert.Equal(t, test.topic, f.Topic, "%+v", f)
			assert.Contains(t, f.Found, test.found)
			assert.True(t, strings.HasPrefix(f.Promise, test.promise), "%+v", f)
			_, address := server.Addr()
			assert.Equal(t, address, f.Server)
		})
	}
}

// A server near its limit of memory is found, and one beyond it, which refuses locks.
func TestCheckFindsFullMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, durable()).Client(t)
	used := client.InfoMap(t.Context(), "memory").Item("Memory", "used_memory")
	n, err := strconv.ParseInt(used, 10, 64)
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(n+n/20, 10)).Err())
	found := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "memory")
	require.Len(t, found, 1)
	assert.Equal(t, driver.SeverityWarning, found[0].Severity)

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	found = about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "writes")
	require.Len(t, found, 1)
	assert.Equal(t, driver.SeverityError, found[0].Severity)
	assert.Contains(t, found[0].Found, "out of memory")
}

// A server that cannot save its data, and answers no ping either, refuses locks.
func TestCheckFindsAServerThatCannotSave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Directives: []string{`save "3600 1000000"`}})
	breakSaving(t, server)
	found := about(check(t, server.Client(t), redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "writes")
	require.Len(t, found, 1)
	assert.Equal(t, driver.SeverityError, found[0].Severity)
	assert.Contains(t, found[0].Found, "cannot save its data")
}

// A command that took a large part of a TTL is found in the slow log.
func TestCheckFindsASlowCommand(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, durable()).Client(t)
	require.NoError(t, client.Do(t.Context(), "debug", "sleep", "0.2").Err())
	found := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: 2 * time.Second}), "latency")
	require.NotEmpty(t, found)
	words := regexp.MustCompile(`debug stopped the server for (\S+) in`).FindStringSubmatch(fmt.Sprint(found))
	require.NotEmpty(t, words, found)
	took, err := time.ParseDuration(words[1])
	require.NoError(t, err)
	slow, err := client.SlowLogGet(t.Context(), -1).Result()
	require.NoError(t, err)
	i := slices.IndexFunc(slow, func(entry redis.SlowLog) bool { return entry.Args[0] == "debug" })
	require.GreaterOrEqual(t, i, 0)
	require.GreaterOrEqual(t, took, 200*time.Millisecond)
	assert.InDelta(t, slow[i].Duration.Seconds(), took.Seconds(), 0.01, "as the server says: a busy machine adds to it")
	assert.Empty(t, about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "latency"))
}

// A master with a replica loses locks in a failover.
func TestCheckFindsAReplica(t *testing.T) {
	t.Parallel()
	c := durable()
	c.TCP = true
	master := redistest.Start(t, c)
	_, address := master.Addr()
	host, port, _ := strings.Cut(address, ":")
	redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"replicaof " + host + " " + port}})
	client := master.Client(t)
	require.Eventually(t, func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "state=online")
	}, time.Minute, time.Millisecond)
	f := onlyFinding(t, check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}))
	assert.Equal(t, driver.SeverityNote, f.Severity)
	assert.Contains(t, f.Found, "asynchronous")
	assert.Empty(t, check(t, client, redisstore.Config{Replicas: 1}, driver.CheckOptions{TTL: longTTL}).Findings)
}

// Round trips are compared with the TTL.
func TestCheckComparesRoundTripsWithTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay = 20 * time.Millisecond
		_, wire := startNetwork(t)
		wire.set(redistest.Fault{Delay: delay})
		store := open(t, wire.client(t))
		latency := func(ttl time.Duration) (driver.Report, []driver.Finding) {
			report, err := store.Check(t.Context(), driver.CheckOptions{TTL: ttl})
			require.NoError(t, err)
			return report, about(report, "latency")
		}
		_, found := latency(3 * delay)
		require.Len(t, found, 1)
		assert.Equal(t, driver.SeverityError, found[0].Severity)
		report, found := latency(10 * delay)
		require.Len(t, found, 1)
		assert.Equal(t, driver.SeverityWarning, found[0].Severity)
		assert.Equal(t, 2*delay, report.Servers[0].RoundTrip)
		_, found = latency(longTTL)
		assert.Empty(t, found)

		_, err := store.Check(t.Context(), driver.CheckOptions{TTL: -1})
		require.ErrorContains(t, err, "TTL -1ns")
		_, err = store.Check(t.Context(), driver.CheckOptions{Name: "a\nb"})
		var name *lock.NameError
		require.ErrorAs(t, err, &name)
	})
}

// A clock that is apart from this process's is found, and one that is set between two
// checks.
func TestCheckFindsAClockThatIsSet(t *testing.T) {
	t.Parallel()
	c := newSteppedClock(t)
	config := durable()
	config.Env = c.env()
	client := redistest.Start(t, config).Client(t)
	var found []driver.Finding
	// Of a store whose first reading the machine has held up for half a second, none is compared with it.
	for limit := time.Now().Add(time.Minute); len(found) < 2 && time.Now().Before(limit); {
		store, err := redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		defer store.Close()
		store.SetCheckTimeout(answersWithin, answersWithin)
		ask := func() driver.Report {
			report, err := store.Check(t.Context(), driver.CheckOptions{TTL: longTTL})
			require.NoError(t, err)
			return report
		}
		c.step(t, 0)
		require.Empty(t, ask().Findings)
		c.step(t, time.Hour)
		found = about(ask(), "clock")
	}
	require.Len(t, found, 2)
	assert.Equal(t, driver.SeverityError, found[0].Severity)
	assert.Regexp(t, `^the server's clock was set: it is (1h0m|59m\d\d)\S* ahead of where`, found[0].Found)
	assert.Equal(t, driver.SeverityWarning, found[1].Severity)
	assert.Regexp(t, `clock is (1h0m|59m\d\d)\S* ahead of this process's`, found[1].Found)

	fresh := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "clock")
	require.Len(t, fresh, 1, "no step was seen by this store")
	assert.Equal(t, driver.SeverityWarning, fresh[0].Severity)
	c.step(t, -time.Hour)
	assert.Regexp(t, `clock is (1h0m|59m\d\d)\S* behind this process's`, fmt.Sprint(about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "clock")))
}

// The clocks of a cluster's masters are compared: permits and messages of delay queues end by
// the clock of the master that has their slot.
func TestCheckComparesTheClocksOfMasters(t *testing.T) {
	t.Parallel()
	clocks := []steppedClock{newSteppedClock(t), newSteppedClock(t)}
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{
		Masters: len(clocks), Server: durable(), Env: func(node int) []string { return clocks[node].env() },
	})
	between := func() (found []driver.Finding) {
		for _, f := range about(check(t, patientClient(t, cluster), redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "clock") {
			if strings.Contains(f.Found, "that of the master") {
				found = append(found, f)
			}
		}
		return found
	}
	require.Empty(t, between())
	clocks[1].step(t, time.Hour)
	found := between()
	require.Len(t, found, 1)
	requireComplete(t, found[0])
	_, behind := cluster.Nodes[0].Addr()
	_, ahead := cluster.Nodes[1].Addr()
	assert.Equal(t, ahead, found[0].Server)
	assert.Equal(t, driver.SeverityWarning, found[0].Severity)
	assert.Regexp(t, `^the master's clock is (1h0m|59m\d\d)\S* ahead of that of the master `+regexp.QuoteMeta(behind)+`$`, found[0].Found)
	assert.Contains(t, found[0].Promise, "permits, and messages of delay queues")
}

// rightsOf returns the rules of a user with some uses, and what a connection needs.
func rightsOf(uses ...redisstore.Use) []string {
	rules := strings.Fields("on >secret resetkeys resetchannels -@all +hello +ping +eval +evalsha +subscribe +unsubscribe")
	for _, u := range uses {
		for i, texts := range [][]string{u.Keys, u.Channels, u.Commands} {
			for _, text := range texts {
				rules = append(rules, "~&+"[i:i+1]+text)
			}
		}
	}
	slices.Sort(rules[5:])
	return slices.Compact(rules)
}

// as returns a client of a user with these rules.
func as(t *testing.T, server *redistest.Server, user string, rules []string) *redis.Client {
	t.Helper()
	args := []any{"acl", "setuser", user}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
	o := server.Options()
	o.Username, o.Password = user, "secret"
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The user of Uses has the rights that it needs, and every one that is taken from it is named.
func TestCheckNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable())
	o := driver.CheckOptions{TTL: longTTL, Name: "orders:"}
	var kinds []redisstore.Use // mutexes first
	var plainLocks redisstore.Use
	for _, u := range redisstore.Uses("orders:*") {
		switch u.Flag {
		case "plain":
			plainLocks = u
		case "inspect", "force":
		default:
			kinds = append(kinds, u)
		}
	}
	least, all := rightsOf(kinds[0]), rightsOf(kinds...)
	report := check(t, as(t, server, "least", least), redisstore.Config{}, o)
	for _, f := range report.Findings {
		assert.Equal(t, driver.SeverityNote, f.Severity, "%+v", f)
	}
	assert.Len(t, about(report, "rights"), len(kinds)-1, "one for each further use")
	assert.Len(t, about(report, "info"), 1)
	assert.Len(t, about(report, "config"), 1)
	assert.Equal(t, "master", report.Servers[0].Role, "by HELLO")
	assert.Regexp(t, `^(redis|valkey) \d`, report.Servers[0].Version)

	assert.Empty(t, about(check(t, as(t, server, "all", all), redisstore.Config{}, o), "rights"))
	plain := as(t, server, "plain", rightsOf(kinds[0], plainLocks))
	assert.Empty(t, about(check(t, plain, redisstore.Config{Format: redisstore.FormatPlain}, o), "rights"))
	found := about(check(t, as(t, server, "least", nil), redisstore.Config{Replicas: 1}, o), "rights")
	require.NotEmpty(t, found)
	assert.Equal(t, "the user may not run wait", found[0].Found)

	missing := func(rules []string, rule string, severity driver.Severity) {
		t.Helper()
		without := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
		user := "no-" + strconv.Itoa(int(users.Add(1)))
		want := rule[1:]
		switch rule[0] {
		case '~', '&':
			want = strings.ReplaceAll(want, "*", "")
			before, after, braced := strings.Cut(want, "{")
			switch {
			case before != "":
				want = before
			case braced: // "{…}:timeout"
				want = after[strings.LastIndex(after, ":"):]
			}
		}
		rights := about(check(t, as(t, server, user, without), redisstore.Config{}, o), "rights")
		require.NotEmpty(t, rights, rule)
		assert.Equal(t, severity, rights[0].Severity, rule)
		assert.Contains(t, rights[0].Found, want, rule)
	}
	tried := 0
	for _, rule := range all {
		severity := driver.SeverityNote
		switch {
		case slices.Contains([]string{"on", ">secret", "resetkeys", "resetchannels", "-@all", "+hello"}, rule):
			continue
		case rule != "+ping" && slices.Contains(least, rule):
			severity = driver.SeverityError
		}
		missing(all, rule, severity)
		tried++
	}
	assert.Greater(t, tried, 35)

	// Without a name the rights of this user cannot be tried: that is no error.
	report = check(t, as(t, server, "least", nil), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
	found = about(report, "rights")
	require.Len(t, found, 1)
	assert.Equal(t, driver.SeverityNote, found[0].Severity)
	assert.Contains(t, found[0].Found, "may not use a lock called leasewheel")
	assert.Zero(t, server.Client(t).DBSize(t.Context()).Val(), "%v", server.Client(t).Keys(t.Context(), "*").Val())
}

var users atomic.Int64

// A server that does not answer is an error within the context's time; so is one that
// refuses the client.
func TestCheckOfAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Password: "right"})
	o := server.Options()
	o.Password = "wrong"
	client := redis.NewClient(o)
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	store.SetCheckTimeout(answersWithin, answersWithin)
	_, err = store.Check(t.Context(), driver.CheckOptions{})
	require.ErrorIs(t, err, redisstore.ErrAuth)

	store, err = redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.Ping(t.Context()))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = store.Check(ctx, driver.CheckOptions{})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	_, err = store.Check(t.Context(), driver.CheckOptions{}) // ends by itself
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

// scripted answers as a server with this INFO. It knows every command that answer leaves to
// it.
func scripted(t *testing.T, info string, answer func(command []string) (reply string, ok bool)) *redis.Client {
	t.Helper()
	address := fakeServer(t, func(command []string) string {
		if answer != nil {
			if reply, ok := answer(command); ok {
				return reply
			}
		}
		switch strings.ToLower(command[0]) {
		case "hello":
			return "-ERR unknown command\r\n"
		case "info":
			return bulk(info)
		case "eval":
			if strings.Contains(command[1], "return removed") { // see compareKeys
				return ":1\r\n"
			}
			return "*0\r\n"
		case "config", "slowlog":
			return "*0\r\n"
		case "evalsha":
			return "-NOSCRIPT\r\n"
		case "publish":
			return ":0\r\n"
		case "subscribe":
			return "*3\r\n" + bulk("subscribe") + bulk(command[1]) + ":1\r\n"
		case "unsubscribe":
			return "*3\r\n" + bulk("unsubscribe") + bulk(command[1]) + ":0\r\n"
		case "time":
			now := time.Now().UnixMicro()
			return "*2\r\n" + bulk(strconv.FormatInt(now/1e6, 10)) + bulk(strconv.FormatInt(now%1e6, 10))
		case "ping":
			return "+PONG\r\n"
		default:
			return "+OK\r\n"
		}
	})
	return bareClient(t, address)
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

const healthyInfo = "redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:0123456789012345678901234567890123456789\r\nrole:master\r\nconnected_slaves:0\r\n" +
	"maxmemory:0\r\nmaxmemory_policy:noeviction\r\nused_memory:1000\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n" +
	"connected_clients:3\r\nmaxclients:100\r\nlatest_fork_usec:5\r\n"

// What servers report that no server of the tests can be brought to report.
func TestCheckOfReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, to string // in the report of a healthy server
		severity driver.Severity
		topic    string
		found    string
	}{
		"an old version":           {"7.0.15", "6.0.16", driver.SeverityError, "version", "redis 6.0.16 is older"},
		"a very old version":       {"7.0.15", "2.8.0", driver.SeverityError, "version", "redis 2.8.0 is older"},
		"a sentinel":               {"standalone", "sentinel", driver.SeverityError, "role", "sentinel"},
		"a node of a cluster":      {"standalone", "cluster", driver.SeverityError, "role", "node of a cluster"},
		"a failed append":          {"write_status:ok", "write_status:err", driver.SeverityError, "persistence", "append-only file failed"},
		"a failed snapshot":        {"bgsave_status:ok", "bgsave_status:err", driver.SeverityWarning, "persistence", "snapshot failed"},
		"many connections":         {"connected_clients:3", "connected_clients:95", driver.SeverityWarning, "connections", "95 of 100"},
		"a slow fork":              {"fork_usec:5", "fork_usec:90000000", driver.SeverityWarning, "latency", "for 1m30s"},
		"a replica that is behind": {"connected_slaves:0", "connected_slaves:1\r\nslave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=60", driver.SeverityWarning, "replicas", "10.0.0.1:6379 is 1m0s behind"},
		"a replica that loads":     {"connected_slaves:0", "connected_slaves:1\r\nslave0:ip=10.0.0.1,port=6379,state=wait_bgsave,offset=1,lag=0", driver.SeverityWarning, "replicas", "10.0.0.1:6379 is not connected"},
		"no policy":                {"maxmemory_policy", "other", driver.SeverityNote, "eviction", "does not report"},
		"a huge number":            {"used_memory:1000", "used_memory:99999999999999999999999999", driver.SeverityNote, "info", "used_memory"},
		"a negative number":        {"maxmemory:0", "maxmemory:-5", driver.SeverityNote, "info", "maxmemory"},
		"no number":                {"connected_slaves:0", "connected_slaves:many", driver.SeverityNote, "info", "connected_slaves"},
		"a long policy":            {"noeviction", "\x1b[2J\x07", driver.SeverityNote, "info", "maxmemory_policy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info := strings.Replace(healthyInfo, test.from, test.to, 1)
			require.NotEqual(t, healthyInfo, info)
			report := check(t, scripted(t, info, deliver()), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
			found := about(report, test.topic)
			require.NotEmpty(t, found, "%+v", report)
			assert.Equal(t, test.severity, found[0].Severity)
			assert.Contains(t, found[0].Found, test.found)
		})
	}
	assert.Empty(t, check(t, scripted(t, healthyInfo, deliver()), redisstore.Config{}, driver.CheckOptions{TTL: longTTL}).Findings)
	for version, product := range map[string]string{
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0":                      "valkey 8.1.0",
		"redis_version:5.0.0\r\nserver_name:valkey\r\nvalkey_version:9.1.2":                      "valkey 9.1.2", // not an old redis
		"redis_version:7.2.4\r\nserver_name:valkey":                                              "valkey 7.2.4",
		"redis_version:7.2.4\r\nserver_name:val\x1b[2Jkey":                                       "redis 7.2.4",
		"redis_version:7.2.4\r\nserver_name:" + strings.Repeat("v", 41) + "\r\nvalkey_version:9": "redis 7.2.4",
	} {
		report := check(t, scripted(t, strings.Replace(healthyInfo, "redis_version:7.0.15", version, 1), deliver()), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
		assert.Equal(t, product, report.Servers[0].Version)
		for _, f := range report.Findings {
			assert.Contains(t, f.Found, "server_name", "a name that makes no sense, and nothing else: %q", version)
		}
	}
}

// deliver makes a scripted server deliver a message with each confirmation of a first
// subscription: it has no state.
func deliver() func(command []string) (string, bool) {
	return func(command []string) (string, bool) {
		if strings.ToLower(command[0]) != "subscribe" || !strings.HasPrefix(command[1], "redisson_lock__channel") {
			return "", false
		}
		return "*3\r\n" + bulk("subscribe") + bulk(command[1]) + ":1\r\n*3\r\n" + bulk("message") + bulk(command[1]) + bulk("check"), true
	}
}

// A server, or a proxy, whose replies make no sense, or that knows fewer commands, is found
// and breaks nothing.
func TestCheckOfStrangeReplies(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 1<<20)
	var endless strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&endless, "field%d:1\r\n", i)
	}
	for name, test := range map[string]struct {
		command, reply string
		topic          string
	}{
		"a script does nothing":          {"eval", "*0\r\n", "answer"},
		"scripts are not known":          {"eval", "-ERR unknown command 'eval'\r\n", "version"},
		"a script has another reply":     {"eval", bulk(huge), "writes"},
		"a script refuses no command":    {"eval", "*2\r\n:99999\r\n" + bulk("ERR x"), "writes"},
		"a refusal is long, and hostile": {"eval", "*2\r\n:3\r\n" + bulk("ERR \x1b[2J"+huge), "writes"},
		"a refusal is no text":           {"eval", "*2\r\n:3\r\n:4\r\n", "writes"},
		"subscriptions are not known":    {"subscribe", "-ERR unknown command 'subscribe'\r\n", "version"},
		"messages get lost":              {"subscribe", "", "pubsub"},
		"the clock is of no time":        {"time", "*2\r\n" + bulk(strconv.FormatInt(math.MaxInt64, 10)) + bulk("-1"), "clock"},
		"the clock is before 1970":       {"time", "*2\r\n" + bulk("-5") + bulk("0"), "clock"},
		"the clock is a text":            {"time", bulk("now"), "answer"},
		"the clock is refused":           {"time", "-NOPERM no\r\n", "clock"},
		"the slow log is a number":       {"slowlog", ":7\r\n", ""},
		"the slow log is strange":        {"slowlog", "*2\r\n:7\r\n*4\r\n:1\r\n:99999999999\r\n:9223372036854775807\r\n:1\r\n", ""},
		"settings are numbers":           {"config", "*3\r\n:7\r\n:8\r\n:9\r\n", ""},
		"settings make no sense":         {"config", "*2\r\n" + bulk("timeout") + bulk("soon"), "info"},
		"INFO is a number":               {"info", ":7\r\n", "info"},
		"INFO is endless":                {"info", bulk(endless.String() + healthyInfo), "info"},
		"PING is not known":              {"ping", "-ERR unknown command 'ping', with args beginning with: \r\n", "version"},
		"INFO is refused":                {"info", "-NOPERM no\r\n", "info"},
		"CONFIG is refused":              {"config", "-ERR unknown command 'CONFIG'\r\n", "config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			normal := deliver()
			client := scripted(t, healthyInfo, func(command []string) (string, bool) {
				if strings.ToLower(command[0]) == test.command && test.reply != "" {
					return test.reply, true
				}
				if test.command == "subscribe" {
					return "", false
				}
				return normal(command)
			})
			message := answersWithin
			if test.reply == "" {
				message = silence
			}
			report := checkWithin(t, message, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
			if test.topic == "" {
				assert.Empty(t, report.Findings)
				return
			}
			assert.NotEmpty(t, about(report, test.topic), "%+v", report.Findings)
		})
	}
}

// A server that stops answering during the check is an error among the findings.
func TestCheckOfAServerThatStopsAnswering(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	defer close(blocked)
	client := scripted(t, healthyInfo, func(command []string) (string, bool) {
		if strings.ToLower(command[0]) == "time" {
			<-blocked
		}
		return "", false
	})
	client.Options().ReadTimeout = silence
	f := onlyFinding(t, check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}))
	assert.Equal(t, "answer", f.Topic)
	assert.Equal(t, driver.SeverityError, f.Severity)
}

// silence is how long what never arrives is awaited: longer than a busy machine takes for what does.
const silence = 15 * time.Second

// A balancer in front of several servers is found.
func TestCheckFindsSeveralServersBehindOneAddress(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t, durable()), redistest.Start(t, durable())}
	o := servers[0].Options()
	var dialed atomic.Int64
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		network, address := servers[dialed.Add(1)%2].Addr()
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client := redis.NewClient(o)
	defer client.Close()
	report := check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
	found := about(report, "proxy")
	require.Len(t, found, 1, "%+v", report.Findings)
	assert.Contains(t, found[0].Found, "lead to 2 servers")
	assert.Equal(t, driver.SeverityError, found[0].Severity)
}

// A proxy that spreads keys over servers is found, although all connections lead to one
// server id: it would grant a lock of a shared run where the run's first lock is.
func TestCheckFindsAProxyThatSpreadsKeys(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t, durable()).Client(t), redistest.Start(t, durable()).Client(t)
	client := bareClient(t, startSpreading(t, first, second))
	found := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "proxy")
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Found, "something spreads keys over servers")
	assert.Equal(t, driver.SeverityError, found[0].Severity)
	for _, server := range []*redis.Client{first, second} {
		assert.Zero(t, server.DBSize(t.Context()).Val(), "keys are left")
	}
}

// Names that a proxy would keep together show nothing, so others are tried.
func TestCheckWithAHashTagFindsAProxyThatSpreadsKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{AOF: true, Directives: durable().Directives, Users: []string{"ada on >pw +@all ~{orders}* ~*{orders}* ~leasewheel:client:* &*"}})
	tagged := driver.CheckOptions{TTL: longTTL, Name: "{orders}:"}
	first, second := server.Client(t), redistest.Start(t, durable()).Client(t)
	client := bareClient(t, startSpreading(t, first, second))
	found := about(check(t, client, redisstore.Config{}, tagged), "proxy")
	require.Len(t, found, 1)
	assert.Equal(t, driver.SeverityError, found[0].Severity)

	found = about(check(t, loginAs(t, server, "ada", "pw"), redisstore.Config{}, tagged), "proxy")
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Found, "names with one hash tag")
	assert.Equal(t, driver.SeverityNote, found[0].Severity)
}

// A server that runs out of memory during the check is out of memory, and no proxy.
func TestCheckOfAServerThatFills(t *testing.T) {
	t.Parallel()
	normal := deliver()
	client := scripted(t, healthyInfo, func(command []string) (string, bool) {
		if strings.ToLower(command[0]) == "eval" && strings.Contains(command[1], "'hset', key") { // see compareKeys
			return "-OOM command not allowed when used memory > 'maxmemory'.\r\n", true
		}
		return normal(command)
	})
	f := onlyFinding(t, check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}))
	assert.Equal(t, "writes", f.Topic)
	assert.Equal(t, driver.SeverityError, f.Severity)
	assert.Contains(t, f.Found, "out of memory")
}

// A lock may be granted to a user who lacks the rights to release it, and the finding
// includes that.
func TestCheckOfRightsWithoutRelease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable())
	client := as(t, server, "writer", []string{"on", ">secret", "+@all", "~*", "&*", "resetchannels", "&redisson_lock_*", "&leasewheel_lock_*"})
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	locker, err := lock.New(store, lock.Config{TTL: longTTL, RequestTimeout: time.Minute})
	require.NoError(t, err)
	defer locker.Close()
	lease, err := locker.ReadWrite("orders").Write().TryLock(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, lease.Unlock(t.Context()), redisstore.ErrNoPermission)

	f := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "rights")
	require.NotEmpty(t, f)
	assert.Contains(t, f[0].Found, "redisson_rwlock")
	assert.Contains(t, f[0].Promise, "none, unless read-write locks are used: they are refused, or granted and not released before their TTL is over")
	assert.Contains(t, f[0].Advice, "leasewheel acl --read-write")
}

// A server that refuses scripts for several locks costs only time.
func TestCheckFindsARefusalOfSeveralKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Masters: 1})
	client := cluster.Nodes[0].Client(t)
	found := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "proxy")
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Found, "a script for several locks is refused")
	assert.Equal(t, driver.SeverityNote, found[0].Severity)
}

// Every master of a cluster is examined, with sharded pub/sub.
func TestCheckOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Server: durable()})
	report := check(t, patientClient(t, cluster), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
	require.Len(t, report.Servers, 3)
	require.Len(t, report.Findings, 3)
	for _, f := range report.Findings {
		assert.Equal(t, "it has no replica", f.Found)
	}
	report = check(t, patientClient(t, cluster), redisstore.Config{}, driver.CheckOptions{TTL: longTTL, Name: "{user:7}:cart"})
	assert.Len(t, about(report, "rights"), 2, "two masters do not have the slot")

	single := check(t, cluster.Nodes[0].Client(t), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
	require.NotEmpty(t, about(single, "role"))
	for _, node := range cluster.Nodes {
		require.NoError(t, node.Client(t).Do(t.Context(), "acl", "setuser", "weak", "on", ">secret", "~*", "&*", "+@all", "-spublish", "-ssubscribe").Err())
	}
	o := cluster.Options()
	o.Username, o.Password, o.ReadTimeout, o.WriteTimeout, o.DialTimeout = "weak", "secret", answersWithin, answersWithin, answersWithin
	client := redis.NewClusterClient(o)
	defer client.Close()
	rights := about(check(t, client, redisstore.Config{}, driver.CheckOptions{TTL: longTTL}), "rights")
	require.Len(t, rights, 3)
	assert.Equal(t, "the user may not run spublish", rights[0].Found)
	for _, node := range cluster.Nodes {
		assert.Zero(t, node.Client(t).DBSize(t.Context()).Val())
	}
}
