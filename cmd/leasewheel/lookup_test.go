//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/look"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Owners of a client that has announced itself and of one that has not.
const (
	shop = "c0ffee00-0000-4000-8000-000000000001"
	java = "285475da-9152-4c83-822a-67ee2f116a79"
)

// commands makes a server run commands, one in each line.
func commands(t *testing.T, client redis.UniversalClient, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if len(args) > 0 {
			require.NoError(t, client.Do(t.Context(), args...).Err(), line)
		}
	}
}

// locks writes some locks to a server, as their holders would.
func locks(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	future := time.Now().Add(time.Hour).UnixMilli()
	commands(t, client, fmt.Sprintf(`
		HSET leasewheel:client:{%[1]s} host web-1 process shop pid 4711 since 2026-11-21T08:00:00Z
		HSET orders:42 %[1]s:7 2
		SET redisson_lock_token:{orders:42} 12
		HSET orders:7 %[2]s:52 1
		HSET report mode read %[1]s:8 1 %[2]s:52 1
		SET {report}:%[1]s:8:rwlock_timeout:1 1
		SET {report}:%[2]s:52:rwlock_timeout:1 1
		HSET fair %[2]s:1 1
		RPUSH redisson_lock_queue:{fair} %[1]s:9 %[2]s:3
		ZADD redisson_lock_timeout:{fair} %[3]d %[1]s:9 1000 %[2]s:3
		HSET basket sku:1 2
		SET text x
	`, shop, java, future))
	require.NoError(t, client.HSet(t.Context(), "evil\u202e\u2028name", java+":1", 1).Err())
}

// askNamed asks until the answer has a client's name: the search for the records of clients has a
// second, and a page of a list five, which a busy machine may exceed.
func askNamed(t *testing.T, env []string, name string, args ...string) (text string) {
	t.Helper()
	commandtest.Eventually(t, "named", func() bool {
		p := commandtest.Call(t, env, args...)
		text = p.Stdout.String()
		return p.Wait() == exit.OK && assert.Empty(t, p.Stderr.String()) && strings.Contains(text, name)
	})
	return text
}

func TestLs(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "ls"))
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "ls", "--json"))
	locks(t, client)

	assert.Equal(t, `NAME                    KIND   HOLDER                                      HELD  TTL      WAITERS
"evil\u202e\u2028name"  mutex  285475da-9152-4c83-822a-67ee2f116a79:1      -     endless  0
fair                    fair   285475da-9152-4c83-822a-67ee2f116a79:1      -     endless  2
orders:42               mutex  shop[4711]@web-1                            -     endless  0
orders:7                mutex  285475da-9152-4c83-822a-67ee2f116a79:52     -     endless  0
report                  read   285475da-9152-4c83-822a-67ee2f116a79:52 +1  -     endless  0
`, askNamed(t, env, "web-1", "ls"))
	assert.Equal(t, `NAME       KIND   HOLDER                                   HELD  TTL      WAITERS
orders:42  mutex  shop[4711]@web-1                         -     endless  0
orders:7   mutex  285475da-9152-4c83-822a-67ee2f116a79:52  -     endless  0
`, askNamed(t, env, "web-1", "ls", "orders:*"))
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "ls", "text"))

	assert.JSONEq(t, `{"name":"orders:42","held":true,"kind":"mutex","ttl_ns":0,"token":12,"holder_count":1,"holders":[`+
		`{"owner":"c0ffee00-0000-4000-8000-000000000001:7","write":false,"holds":2,"ttl_ns":0,"client":`+
		`{"id":"c0ffee00-0000-4000-8000-000000000001","host":"web-1","process":"shop","pid":4711,"since":"2026-11-21T08:00:00Z"}}],`+
		`"waiter_count":0,"waiters":[]}`, askNamed(t, env, "web-1", "ls", "--json", "orders:42"))
	lines := commandtest.Ask(t, env, exit.OK, "ls", "--json")
	assert.Equal(t, 5, strings.Count(lines, "\n"))
	assert.Contains(t, lines, `"name":"evil\u202e\u2028name"`)
	assert.NotContains(t, lines, "\u202e")
	for line := range strings.Lines(lines) {
		requireLockSchema(t, line)
	}
}

// The user that SECURITY.md describes sees its own locks among those of others,
// without a pattern. If it lacks a command, or a key of a lock, that is a failure.
func TestLsWithTheLeastRights(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"redisson", "plain"} {
		t.Run(format, func(t *testing.T) {
			rules := leastUser(t, "plain", "inspect")
			weak := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return rule == "+hgetall" || rule == "+type" })
			weak[0] = "weak"
			partial := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return strings.HasPrefix(rule, "~redisson_") })
			partial[0] = "partial"
			server := redistest.Start(t, redistest.Config{
				Users: []string{strings.Join(rules, " "), strings.Join(weak, " "), strings.Join(partial, " ")},
			})
			client := server.Client(t)
			locks(t, client)
			require.NoError(t, client.Set(t.Context(), "orders:8", java+":1", time.Hour).Err())
			require.NoError(t, client.Set(t.Context(), "payments:8", java+":1", time.Hour).Err())
			_, path := server.Addr()
			env := func(user string) []string {
				return []string{connect.URLVariable + "=unix://" + user + ":secret@" + path}
			}
			want := map[string]string{"redisson": "orders:42\norders:7\n", "plain": "orders:8\n"}[format]
			assert.Equal(t, want, commandtest.FirstColumn(commandtest.Ask(t, env(rules[0]), exit.OK, "ls", "--format", format)))
			assert.Equal(t, want, commandtest.FirstColumn(commandtest.Ask(t, env(rules[0]), exit.OK, "ls", "--format", format, "orders:*")))
			for _, user := range []string{"weak", "partial"} {
				p := commandtest.Call(t, env(user), "ls", "--format", format)
				assert.Equal(t, exit.Unavailable, p.Wait(), user)
				p.RequireOneLine("lacks a permission")
			}
		})
	}
}

// requireLockSchema checks a lock's JSON against its description in docs/.
func requireLockSchema(t *testing.T, text string) {
	t.Helper()
	var document any
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	s := commandtest.ReadSchema(t, "lock")
	require.Empty(t, s.Faults("", document), text)
	require.Empty(t, s.Unnamed("", document), text)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	locks(t, server.Client(t))
	assert.Equal(t, `lock    orders:42
kind    mutex
ends    never by itself
token   12
holder  shop[4711]@web-1, owner c0ffee00-0000-4000-8000-000000000001:7, held 2 times
`, askNamed(t, env, "web-1", "inspect", "orders:42"))
	assert.Regexp(t, `^lock    fair
kind    fair
ends    never by itself
holder  owner 285475da-9152-4c83-822a-67ee2f116a79:1
waiter  shop\[4711\]@web-1, owner c0ffee00-0000-4000-8000-000000000001:9, place kept for (59m|1h0m)\S+s
waiter  owner 285475da-9152-4c83-822a-67ee2f116a79:3, its place has expired
$`, askNamed(t, env, "web-1", "inspect", "fair"))
	assert.Equal(t, `lock      text
taken by  a string, which is not a lock of this format
ends      never by itself
`, commandtest.Ask(t, env, exit.OK, "inspect", "text"))
	assert.Equal(t, "lock    nothing\nholder  none\n", commandtest.Ask(t, env, exit.NotHeld, "inspect", "nothing"))

	free := commandtest.Ask(t, env, exit.NotHeld, "inspect", "--json", "nothing")
	assert.JSONEq(t, `{"name":"nothing","held":false,"kind":"free","ttl_ns":0,"token":0,"holder_count":0,"holders":[],"waiter_count":0,"waiters":[]}`, free)
	requireLockSchema(t, free)
	foreign := commandtest.Ask(t, env, exit.OK, "inspect", "--json", "basket")
	assert.JSONEq(t, `{"name":"basket","held":false,"kind":"foreign","foreign":"hash","ttl_ns":0,"token":0,"holder_count":0,"holders":[],"waiter_count":0,"waiters":[]}`, foreign)
	requireLockSchema(t, foreign)
	requireLockSchema(t, commandtest.Ask(t, env, exit.OK, "inspect", "--json", "fair"))
	requireLockSchema(t, commandtest.Ask(t, env, exit.OK, "inspect", "--json", "report"))
}

// JSON counts all holders and waiters, and lists the first hundred.
func TestInspectCountsAllHolders(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	const many = driver.MaxTold + 23
	for n := range many {
		commands(t, client, fmt.Sprintf(`
			HSET report mode read %[1]s:%[2]d 1
			SET {report}:%[1]s:%[2]d:rwlock_timeout:1 1
			RPUSH redisson_lock_queue:{fair} %[1]s:%[2]d
		`, java, n))
	}
	commands(t, client, fmt.Sprintf("HSET fair %s:0 1", shop))
	inspect := func(name string) (report look.LockReport) {
		require.NoError(t, json.Unmarshal([]byte(commandtest.Ask(t, env, exit.OK, "inspect", "--json", name)), &report))
		return report
	}
	readers, queue := inspect("report"), inspect("fair")
	assert.EqualValues(t, many, readers.HolderCount)
	assert.Len(t, readers.Holders, driver.MaxTold)
	assert.EqualValues(t, many, queue.WaiterCount)
	assert.Len(t, queue.Waiters, driver.MaxTold)
	assert.Regexp(t, `(?m)^report +read +\S+ \+122 `, commandtest.Ask(t, env, exit.OK, "ls"))
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "inspect", "report"), "and 23 more")
}

// A number is reported as the kind that --kind names. Permits in use, and waiters in the
// queue, are reported in full.
func TestInspectCountsAndLines(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	commands(t, client, fmt.Sprintf(`
		SET downloads 3
		SET redisson_lock_token:{exports} 7
		SET exports -1
		HSET job %[1]s:1 1
		HSET leasewheel:client:{%[1]s} host web-1 process shop pid 4711 since 2026-11-21T08:00:00Z
	`, shop))
	require.NoError(t, client.ZAdd(t.Context(), "leasewheel_lock_line:{job}", redis.Z{Score: 1795161600000001, Member: shop + ":2 30000 0"}).Err())
	id := "\xff\x00 random bytes."
	require.NoError(t, client.ZAdd(t.Context(), "{exports}:timeout", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: id}).Err())

	assert.Equal(t, "lock       downloads\nkind       semaphore\navailable  3\n", commandtest.Ask(t, env, exit.OK, "inspect", "--kind", "semaphore", "downloads"))
	assert.Equal(t, "lock   downloads\nkind   latch\ncount  3\n", commandtest.Ask(t, env, exit.OK, "inspect", "--kind", "latch", "downloads"))
	assert.Equal(t, `lock      downloads
taken by  the number 3, which may be that of a semaphore or a latch; use --kind
ends      never by itself
`, commandtest.Ask(t, env, exit.OK, "inspect", "downloads"))
	assert.Equal(t, "lock   none\ncount  0, it is open\n", commandtest.Ask(t, env, exit.NotHeld, "inspect", "--kind", "latch", "none"))
	assert.Equal(t, "lock       none\navailable  no number of permits was set\n", commandtest.Ask(t, env, exit.NotHeld, "inspect", "--kind", "permits", "none"))
	for _, args := range [][]string{{"inspect", "exports"}, {"inspect", "--kind", "permits", "exports"}} {
		assert.Regexp(t, `^lock       exports
kind       permits
available  -1
in use     1
ends       in (59m|1h0m)\S+s, unless renewed
token      7
holder     owner ff002072616e646f6d2062797465732e
$`, commandtest.Ask(t, env, exit.OK, args...))
	}
	assert.Regexp(t, `(?m)^exports +permits +ff002072616e646f6d2062797465732e +- +(59m|1h0m)\S+s +0$`, commandtest.Ask(t, env, exit.OK, "ls"))
	assert.Equal(t, "exports\njob\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "ls")))
	assert.Regexp(t, `(?m)^waiter +shop\[4711\]@web-1, owner \S+:2, waiting for \S+, no longer subscribed$`, askNamed(t, env, "web-1", "inspect", "job"))

	for _, args := range [][]string{
		{"exports"},
		{"job"},
		{"downloads"},
		{"--kind", "latch", "downloads"},
		{"--kind", "semaphore", "none"},
		{"--kind", "semaphore", "job"},
	} {
		code := exit.OK
		if args[len(args)-1] == "none" {
			code = exit.NotHeld
		}
		requireLockSchema(t, commandtest.Ask(t, env, code, append([]string{"inspect", "--json"}, args...)...))
	}
	assert.JSONEq(t, `{"name":"downloads","held":false,"kind":"semaphore","count":3,"ttl_ns":0,"token":0,"holder_count":0,"holders":[],"waiter_count":0,"waiters":[]}`,
		commandtest.Ask(t, env, exit.OK, "inspect", "--json", "--kind", "semaphore", "downloads"))

	p := commandtest.Call(t, env, "unlock", "--force", "exports")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("exports is a string, not a lock of this format; it was left alone")
}

// The report of a lock that leasewheel holds names the process that holds it.
func TestInspectWhatRunHolds(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	begin := time.Now().Truncate(time.Second)
	holder := commandtest.Start(t, env, runLock("job", sh("echo held; read line"), "--label", "nightly run")...)
	assert.Equal(t, "held", holder.Line())
	var report look.LockReport
	commandtest.Eventually(t, "announced", func() bool {
		text := commandtest.Ask(t, env, exit.OK, "inspect", "--json", "job")
		requireLockSchema(t, text)
		require.NoError(t, json.Unmarshal([]byte(text), &report))
		return report.Holders[0].Client.PID != 0
	})
	assert.Equal(t, holder.Cmd.Process.Pid, report.Holders[0].Client.PID)
	assert.Equal(t, "nightly run", report.Holders[0].Client.Label)
	require.NotNil(t, report.Holders[0].Since)
	assert.False(t, report.Holders[0].Since.Before(begin), "%v", report.Holders[0].Since)
	assert.InDelta(t, time.Hour, report.TTL, float64(time.Hour/2))
	assert.Regexp(t, `(?m)^holder  \S+\[\d+\]@\S+ "nightly run", owner \S+:1, for \S+s since 20\S+Z$`, askNamed(t, env, "nightly run", "inspect", "job"))
	assert.Regexp(t, `(?m)^job +mutex +\S+\[\d+\]@\S+ "nightly run" +\S+s +\S+s +0$`, askNamed(t, env, "nightly run", "ls"))
	require.NoError(t, holder.Stdin.Close())
	assert.Equal(t, 1, holder.Wait(), "the end of its input")
	commandtest.Ask(t, env, exit.NotHeld, "inspect", "job")
}

// A forced release grants the lock to the waiter, and the former holder ends its command.
func TestUnlockForce(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	victim := commandtest.Start(t, env, runLock("job", sh("echo held; cat"))...)
	assert.Equal(t, "held", victim.Line())
	next := commandtest.Start(t, env, runLock("job", sh("echo mine; cat"), "-v")...)
	next.AwaitError("waiting for lock")

	p := commandtest.Call(t, env, "unlock", "job")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("confirm with --force")
	assert.Regexp(t, `^job: taken from (\S+\[\d+\]@\S+ "sh", )?owner \S+:1.*\n$`, commandtest.Ask(t, env, exit.OK, "unlock", "--force", "job"))
	assert.Equal(t, "mine", next.Line())
	require.NoError(t, victim.Stdin.Close())
	assert.Equal(t, exit.Lost, victim.Wait())
	require.NoError(t, next.Stdin.Close())
	assert.Equal(t, 0, next.Wait())
	victim.RequireReport("lost")
	assert.Equal(t, "job: it was not held\n", commandtest.Ask(t, env, exit.NotHeld, "unlock", "--force", "job"))
}

func TestUnlockOfSeveral(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	locks(t, client)
	assert.Regexp(t, `^orders:42: taken from (shop\[4711\]@web-1, )?owner c0ffee00-0000-4000-8000-000000000001:7, held 2 times
nothing: it was not held
report: taken from owner 285475da-9152-4c83-822a-67ee2f116a79:52
report: taken from (shop\[4711\]@web-1, )?owner c0ffee00-0000-4000-8000-000000000001:8
$`, commandtest.Ask(t, env, exit.NotHeld, "unlock", "--force", "orders:42", "nothing", "report"))
	assert.Equal(t, "fair\norders:7\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "ls", "[fo]*")))

	p := commandtest.Call(t, env, "unlock", "--force", "text", "orders:7", "basket")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("text is a string, not a lock of this format; it was left alone; basket is a hash, not a lock")
	assert.Equal(t, "orders:7: taken from owner 285475da-9152-4c83-822a-67ee2f116a79:52\n", p.Stdout.String())
	assert.Equal(t, "x", client.Get(t.Context(), "text").Val())

	weak := redistest.Start(t, redistest.Config{Users: []string{"weak on >" + commandtest.Secret + " ~*text* &* +@all"}})
	require.NoError(t, weak.Client(t).Set(t.Context(), "text", "x", 0).Err())
	_, path := weak.Addr()
	p = commandtest.Call(t, []string{"LEASEWHEEL_STORE=unix://weak:" + commandtest.Secret + "@" + path}, "unlock", "--force", "text", "orders:7")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("text is a string, not a lock of this format; it was left alone; server " + path)

	p = commandtest.Call(t, env, "unlock", "--force", "fair", "a{b")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("brace")
	assert.Equal(t, "fair\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "ls", "fair")), "nothing was done")
	was := commandtest.Ask(t, env, exit.OK, "unlock", "--force", "--json", "fair")
	requireLockSchema(t, was)
	assert.Contains(t, was, `{"name":"fair","held":true,"kind":"fair"`)
}

// Every misuse is one line and exit code 64, and every server that does not answer
// one line and 69, without a password.
func TestLookupTrouble(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"one PATTERN":                      {"ls", "a", "b"},
		`pattern "a["`:                     {"ls", "a["},
		"too long":                         {"ls", strings.Repeat("*", driver.MaxName+1)},
		"unknown flag: --nothing":          {"ls", "--nothing"},
		"inspect takes the NAME":           {"inspect"},
		"of one lock":                      {"inspect", "a", "b"},
		"lone brace":                       {"inspect", "a{b"},
		`--kind "mutex": accepted are`:     {"inspect", "--kind", "mutex", "a"},
		"NAME is missing":                  {"unlock", "--force"},
		"confirm with --force":             {"unlock", "a"},
		"holds a control character":        {"unlock", "--force", "a\nb"},
		"--store and --store-file exclude": {"ls", "--store", "redis://a", "--store-file", "b"},
	} {
		t.Run(says, func(t *testing.T) {
			p := commandtest.Call(t, commandtest.Nowhere, args...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine(says)
			assert.Empty(t, p.Stdout.String())
		})
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"ls", "job"}, {"inspect", "job"}, {"unlock", "--force", "job"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel() // it is tried again for a while
			p := commandtest.Call(t, commandtest.Nowhere, args...)
			assert.Equal(t, exit.Unavailable, p.Wait())
			p.RequireOneLine("server 127.0.0.1:1: ")
			assert.Empty(t, p.Stdout.String())
			p = commandtest.Call(t, nil, append(args, "--prefix=")...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine("no server")
		})
	}
}

// The ACL user in SECURITY.md can inspect its own locks and force them open, and no
// others.
func TestLookupByLeastUser(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "force")
	server, _ := commandtest.OnServer(t, redistest.Config{TCP: true, Users: []string{strings.Join(rules, " ")}})
	admin := server.Client(t)
	_, address := server.Addr()
	env := []string{connect.URLVariable + "=redis://" + rules[0] + ":secret@" + address}
	locks(t, admin)
	future := time.Now().Add(time.Hour).UnixMilli()
	commands(t, admin, fmt.Sprintf(`
		HSET orders:fair %[1]s:1 1
		RPUSH redisson_lock_queue:{orders:fair} %[1]s:2 %[1]s:3
		ZADD redisson_lock_timeout:{orders:fair} 1 %[1]s:2 %[2]d %[1]s:3
		ZADD leasewheel_lock_places:{orders:fair} %[2]d %[1]s:3
		HSET orders:read mode read %[1]s:1 1
		SET {orders:read}:%[1]s:1:rwlock_timeout:1 1
	`, java, future))
	large := []any{"mode", "read"}
	for n := range 200 {
		owner := fmt.Sprintf("%s:%d", java, n)
		large = append(large, owner, 1)
		require.NoError(t, admin.Set(t.Context(), "{orders:large}:"+owner+":rwlock_timeout:1", 1, time.Hour).Err())
	}
	require.NoError(t, admin.HSet(t.Context(), "orders:large", large...).Err())

	assert.Equal(t, "orders:42\norders:7\norders:fair\norders:large\norders:read\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "ls", "orders:*")))
	commandtest.Ask(t, env, exit.OK, "inspect", "orders:42")
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "unlock", "--force", "orders:42", "orders:fair", "orders:read", "orders:large"), "orders:fair: taken")
	assert.Empty(t, refused(t, admin))

	p := commandtest.Call(t, env, "inspect", "report")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("lacks a permission")
}

// A line of ls --json is printed as its lock is found, not when a server further on has answered.
func TestLsPrintsLinesAsTheyAreFound(t *testing.T) {
	t.Parallel()
	servers, env := commandtest.OnQuorum(t)
	for _, server := range servers {
		commands(t, server.Client(t), "HSET orders:42 "+java+":1 1")
	}
	defer servers[1].Resume()
	commandtest.Eventually(t, "listed whole", func() bool { // a page of a list has 5 s
		servers[1].Pause()
		p := commandtest.Start(t, env, "ls", "--json")
		assert.Contains(t, p.Line(), "orders:42")
		servers[1].Resume()
		return p.Wait() == exit.OK && strings.Count(p.Stdout.String(), "orders:42") == 3
	})
}

// A reader that closes the pipe ends the list.
func TestLsIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	pipe := client.Pipeline()
	for n := range 3000 {
		pipe.HSet(t.Context(), fmt.Sprintf("lock:%d", n), java+":1", 1)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
		cmd.Args = []string{"/bin/sh", "-c", `"$0" ls --json | head -n 1 | wc -l`, cmd.Path}
		cmd.Path = "/bin/sh"
	})
	assert.Equal(t, "1", strings.TrimSpace(p.Line()))
	assert.Equal(t, 0, p.Wait())
}

// The rules for one server apply to a cluster: to all its masters, and while one of them
// is down, to the others.
func TestLookupInACluster(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	cluster := startCluster(t)
	client := clusterClient(t, cluster, "", "")
	env := []string{connect.URLVariable + "=" + clusterURL(cluster)}
	t.Run("Unlock", func(t *testing.T) { forcesOpen(t, cluster, env) })

	const count = 60 // those of a list of many pages are redisstore's to test: a page has 5 s, whatever the machine does
	writeLocks(t, client, count)
	t.Run("Ls", func(t *testing.T) { listsEach(t, env, count) })
}

// forcesOpen forces a lock open whose holder and waiter run in this process, each a
// client of its own.
func forcesOpen(t *testing.T, cluster *redistest.Cluster, env []string) {
	long := func() *lock.Locker {
		locker, _ := newLocker(t, clusterClient(t, cluster, "", ""), redisstore.Config{}, lock.Config{TTL: time.Hour, Poll: time.Hour})
		return locker
	}
	victim, waiter, admin := long(), long(), clusterClient(t, cluster, "", "")
	const name = "orders:42"
	lease, err := victim.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	granted := make(chan *lock.Lease, 1)
	go func() {
		lease, err := waiter.Mutex(name).Lock(commandtest.Bounded(t))
		assert.NoError(t, err)
		granted <- lease
	}()
	commandtest.Eventually(t, "in line", func() bool {
		return admin.ZCard(t.Context(), "leasewheel_lock_line:{"+name+"}").Val() == 1
	})
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "unlock", "--force", name), "taken from")
	next := <-granted // by a message: it would ask again in an hour
	require.NotNil(t, next)
	assert.Greater(t, next.Token(), lease.Token())
	require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	require.NoError(t, next.Unlock(t.Context()))
}

// writeLocks writes so many locks of one client's, among as many hashes of others.
func writeLocks(t *testing.T, client redis.UniversalClient, count int) {
	t.Helper()
	pipe := client.Pipeline()
	for n := range count {
		name := lockName(n)
		pipe.HSet(t.Context(), name, fmt.Sprintf("%s:%d", shop, n), 1)
		pipe.PExpire(t.Context(), name, time.Hour)
		pipe.Set(t.Context(), "redisson_lock_token:{"+name+"}", time.Now().UnixMicro(), 0)
		pipe.HSet(t.Context(), fmt.Sprintf("session:%d", n), "user", n)
	}
	commands(t, client, "HSET leasewheel:client:{"+shop+"} host web-1 process shop pid 4711 since 2026-11-21T08:00:00Z")
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

func lockName(n int) string { return fmt.Sprintf("lock:%d", n) }

// listsEach lists all locks, each once and with its holder.
func listsEach(t *testing.T, env []string, count int) {
	var lines []string
	commandtest.Eventually(t, "all named", func() bool { // the search for the records of clients has a second
		p := commandtest.Call(t, env, "ls", "--json")
		lines = slices.Collect(strings.Lines(p.Stdout.String()))
		return p.Wait() == exit.OK && strings.Count(p.Stdout.String(), `"host":"web-1"`) == len(lines)
	})
	var listed, wanted []string
	for _, line := range lines {
		var report look.LockReport
		require.NoError(t, json.Unmarshal([]byte(line), &report))
		listed = append(listed, report.Name)
		require.Equal(t, "web-1", report.Holders[0].Client.Host)
		require.NotNil(t, report.Holders[0].Since)
	}
	for n := range count {
		wanted = append(wanted, lockName(n))
	}
	slices.Sort(listed)
	slices.Sort(wanted)
	assert.True(t, slices.Equal(wanted, listed), "each once, and nothing else: %d are listed", len(listed))
	assert.Equal(t, 11, strings.Count(commandtest.Ask(t, env, exit.OK, "ls", "lock:1?"), "\n"))
}

// Tables have straight columns, also of names with characters of two columns, or of none.
func TestTablesOfWideNames(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	for _, name := range []string{"abc", "名字", "e\u0301"} {
		require.NoError(t, server.Client(t).HSet(t.Context(), name, java+":1", 1).Err())
		commandtest.Ask(t, env, exit.OK, "queue", "put", "--id", name, "mails", "dear Ada")
	}
	for _, test := range []struct {
		text string
		args []string
	}{
		{" mutex ", []string{"ls"}},
		{" ready ", []string{"queue", "ls", "mails"}},
	} {
		table := commandtest.Ask(t, env, exit.OK, test.args...)
		for _, name := range []string{"abc ", "名字", "e\u0301   "} {
			assert.Contains(t, table, "\n"+name+" "+test.text)
		}
	}
}
