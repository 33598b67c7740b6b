//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/acl"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// setUser runs the command that leasewheel acl prints with args on a server.
func setUser(t *testing.T, client *redis.Client, args ...string) {
	t.Helper()
	var command []any
	for word := range strings.FieldsSeq(commandtest.Ask(t, nil, exit.OK, append([]string{"acl"}, args...)...)) {
		command = append(command, word)
	}
	require.NoError(t, client.Do(t.Context(), command...).Err())
}

// The printed command makes a user that can run what it was printed for, and nothing on
// other names. The password is printed as its hash.
func TestACL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(commandtest.Secret+"\n"), 0o600))
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	line := commandtest.Ask(t, nil, exit.OK, "acl", "--user", "shop", "--password-file", file, "orders:*")
	assert.Equal(t, 1, strings.Count(line, "\n"))
	assert.NotContains(t, line, commandtest.Secret)
	setUser(t, admin, "--user", "shop", "--password-file", file, "orders:*")
	_, path := server.Addr()
	env := []string{connect.URLVariable + "=unix://shop:" + commandtest.Secret + "@" + path}

	p := commandtest.Start(t, env, runLock("orders:42", sh("echo done"))...)
	assert.Equal(t, "done", p.Line())
	assert.Equal(t, 0, p.Wait())
	assert.Empty(t, refused(t, admin))
	p = commandtest.Call(t, env, runLock("payments:42", sh("echo done"))...)
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("lacks a permission")

	// Further uses replace the earlier ones, and leave the password.
	require.NoError(t, admin.ACLLogReset(t.Context()).Err())
	setUser(t, admin, "--user", "shop", "--inspect", "*")
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "ls"))
	assert.Empty(t, refused(t, admin))
	setUser(t, admin, "--user", "shop", "orders:*")
	assert.Equal(t, exit.Unavailable, commandtest.Call(t, env, "ls", "a*").Wait())
}

func TestACLForms(t *testing.T) {
	t.Parallel()
	command := commandtest.Ask(t, nil, exit.OK, "acl", "--fair", "orders:*")
	assert.Equal(t, "ACL SETUSER "+strings.Replace(strings.Join(leastUser(t, "fair"), " "), " >secret", "", 1)+"\n", command)
	assert.Equal(t, command, commandtest.Ask(t, nil, exit.OK, "acl", "--fair", "--locks", "orders:*"))
	assert.Equal(t, strings.Replace(command, "ACL SETUSER", "user", 1), commandtest.Ask(t, nil, exit.OK, "acl", "--acl-file", "--fair", "orders:*"))
	var report acl.Report
	require.NoError(t, json.Unmarshal([]byte(commandtest.Ask(t, nil, exit.OK, "acl", "--json", "--fair", "orders:*")), &report))
	assert.Equal(t, command, fmt.Sprintln("ACL SETUSER", report.User, strings.Join(report.Rules, " ")))
	prefixed := commandtest.Ask(t, nil, exit.OK, "acl", "--prefix", "shop[1]:", "orders:*")
	assert.Contains(t, prefixed, ` ~shop\[1\]:orders:* `)
	assert.Equal(t, prefixed, commandtest.Ask(t, []string{connect.PrefixVariable + "=shop[1]:"}, exit.OK, "acl", "orders:*"))
	assert.NotContains(t, commandtest.Ask(t, nil, exit.OK, "acl", "--queue", "--cluster", "a*"), "~redisson", "no locks")
	assert.Contains(t, commandtest.Ask(t, nil, exit.OK, "acl", "--queue", "--fair", "a*"), "~redisson")
	assert.Contains(t, commandtest.Ask(t, nil, exit.OK, "acl", "--force"), "+scan", "forcing inspects")

	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	lines := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(lines, []byte(commandtest.Secret+"\n\nanother\n"), 0o600))
	for text, args := range map[string][]string{
		"more than one line":     {"--password-file", lines},
		"one PATTERN":            {"a", "b"},
		"no white space":         {"a b"},
		`PATTERN`:                {""},
		`needs its "]"`:          {"a["},
		`a "\" at the end`:       {`a\`},
		"--user":                 {"--user", `a"b`},
		"--sentinel is the user": {"--sentinel", "--fair"},
		"has no password":        {"--password-file", empty},
		"more than 65536 bytes":  {"--password-file", "/dev/zero"},
		"--password-file: open":  {"--password-file", empty + "x"},
	} {
		p := commandtest.Call(t, nil, append([]string{"acl"}, args...)...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine(text)
	}
}

// A pattern covers all keys and channels of the names that match it, of every kind of
// lock, and no others.
func TestACLPatterns(t *testing.T) {
	t.Parallel()
	uses := []string{"--fair", "--read-write", "--semaphore", "--inspect", "--force", "--queue"}
	for _, c := range []struct{ pattern, prefix, name, other string }{
		{"orders:*", "", "orders:42", "payments:42"},
		{"orders:42", "", "orders:42", "orders:421"},
		{"{user:7}:*", "", "{user:7}:cart", "{user:8}:cart"},
		{"{user:7}:cart", "", "{user:7}:cart", "{user:8}:cart"},
		{"*", "", "any{7}thing", ""},
		{"*:42", "", "orders:42", "orders:43"},
		{"orders:*", "shop[1]:", "orders:42", "payments:42"},
	} {
		t.Run(c.prefix+c.pattern+" "+c.name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Config{})
			admin := server.Client(t)
			setUser(t, admin, append(uses, "--prefix", c.prefix, c.pattern)...)
			require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "leasewheel", ">secret").Err())
			options := server.Options()
			options.Username, options.Password = "leasewheel", "secret"
			locker, store := newLocker(t, redis.NewClient(options), redisstore.Config{Prefix: c.prefix}, lock.Config{})
			use := func(name string) error {
				for _, m := range []*lock.Mutex{locker.Mutex(name), locker.Fair(name), locker.ReadWrite(name).Read(), locker.ReadWrite(name).Write()} {
					if err := m.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return nil
			}
			require.NoError(t, use(c.name))
			_, err := locker.Inspect(t.Context(), c.name, driver.KindMutex)
			require.NoError(t, err)
			_, err = locker.Semaphore(c.name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, locker.Semaphore(c.name).Acquire(t.Context(), 1))
			require.NoError(t, locker.Semaphore(c.name).Release(t.Context(), 1))
			require.NoError(t, admin.Del(t.Context(), c.prefix+c.name).Err())
			_, err = locker.Permits(c.name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, locker.Permits(c.name).One().Do(t.Context(), func(context.Context) error { return nil }))
			for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindSemaphore, driver.KindPermit, driver.KindLatch} {
				sub, err := store.Subscribe(t.Context(), &driver.Hold{Kind: kind, Name: c.name, Owner: locker.ClientID() + ":1"}, func(driver.Notice) {})
				require.NoError(t, err, kind)
				sub.Close()
			}
			assert.Empty(t, refused(t, admin))
			if c.other != "" {
				require.ErrorContains(t, use(c.other), "NOPERM")
				inBraces := c.prefix + c.other
				if !strings.Contains(inBraces, "{") {
					inBraces = "{" + inBraces + "}"
				}
				client := redis.NewClient(options)
				defer client.Close()
				require.ErrorContains(t, client.Get(t.Context(), "redisson_lock_token:"+inBraces).Err(), "NOPERM")
			}
		})
	}
}

// guided is a set of sentinels, whose users are those of leasewheel acl.
type guided struct {
	*redistest.SentinelSet
	admins    []*redis.Client // of the sentinels
	newClient func() redis.UniversalClient
}

// startGuided starts sentinels that suspect a master which is silent for so long.
func startGuided(t *testing.T, downAfter time.Duration) guided {
	t.Helper()
	rules := leastUser(t)
	set := guided{SentinelSet: redistest.StartSentinels(t, redistest.SentinelConfig{
		Server: redistest.Config{Users: []string{strings.Join(rules, " ")}}, DownAfter: downAfter,
	})}
	for _, sentinel := range set.Sentinels {
		set.admins = append(set.admins, sentinel.Client(t))
		setUser(t, sentinel.Client(t), "--sentinel", "--user", "guide")
		require.NoError(t, sentinel.Client(t).Do(t.Context(), "acl", "setuser", "guide", ">secret").Err())
	}
	values := url.Values{"master_name": {redistest.MasterName}, "username": {rules[0]}, "password": {"secret"}}
	for _, limit := range []string{"read_timeout", "write_timeout", "pool_timeout"} {
		values.Set(limit, commandtest.Patience.String())
	}
	values.Set("dial_timeout", (2 * commandtest.Patience).String()) // redisstore.New requires more than read_timeout
	var addresses []string
	for _, sentinel := range set.Sentinels {
		_, address := sentinel.Addr()
		addresses = append(addresses, address)
	}
	values["addr"] = addresses[1:]
	set.newClient = func() redis.UniversalClient {
		client, err := redisstore.Dial("redis-sentinel://guide:secret@"+addresses[0]+"?"+values.Encode(), redisstore.ClientConfig{})
		require.NoError(t, err)
		return client
	}
	return set
}

// requireNoneRefused asserts that neither sentinels nor servers have refused a request.
func (g *guided) requireNoneRefused(t *testing.T) {
	t.Helper()
	for _, node := range g.Nodes {
		assert.Empty(t, refused(t, node.Client(t)))
	}
	for _, admin := range g.admins {
		assert.Empty(t, refused(t, admin))
	}
}

// The users of the sentinels and of their servers can do all that a client does; a test of real
// time has the failover. A client that cannot run one of a sentinel's commands is refused it.
func TestLeastUserWithSentinels(t *testing.T) {
	t.Parallel()
	set := startGuided(t, commandtest.Patience)
	admins, newClient := set.admins, set.newClient
	useLocks(t, set.Client(t), newClient)
	set.requireNoneRefused(t)

	for _, rule := range acl.RulesOf(acl.UsesOf("*", func(flag string) bool { return flag == "sentinel" })) {
		if rule[0] != '+' && rule[0] != '&' || rule == "+hello" || rule == "+ping" || rule == "+unsubscribe" {
			continue // the client goes on without them for a while
		}
		for _, admin := range admins {
			require.NoError(t, admin.ACLLogReset(t.Context()).Err())
			setUser(t, admin, "--sentinel", "--user", "guide")
			if rule[0] == '+' {
				require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "guide", "-"+rule[1:]).Err())
				continue
			}
			require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "guide", "resetchannels").Err())
		}
		client := newClient()
		_ = client.Ping(commandtest.Bounded(t)).Err()
		commandtest.Eventually(t, rule+" was refused", func() bool {
			return slices.ContainsFunc(admins, func(admin *redis.Client) bool { return len(refused(t, admin)) > 0 })
		})
		require.NoError(t, client.Close())
	}
}

// The user of a quorum's servers can hold locks there, and is asked for their identity.
func TestLeastUserOfAQuorum(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "quorum")
	var urls []string
	var admins []*redis.Client
	for range 3 {
		server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
		_, path := server.Addr()
		urls = append(urls, "unix://"+rules[0]+":secret@"+path)
		admins = append(admins, server.Client(t))
		require.NoError(t, admins[len(admins)-1].ConfigResetStat(t.Context()).Err())
	}
	env := []string{connect.URLVariable + "=" + strings.Join(urls, " ")}
	holder := commandtest.Start(t, env, runLock("orders:42", sh("echo held; read line"), "--ttl", "30s")...)
	assert.Equal(t, "held", holder.Line())
	waiter := commandtest.Start(t, env, runLock("orders:42", sh("echo mine"))...)
	commandtest.Eventually(t, "renewed, and awaited", func() bool {
		calls := called(t, admins[0])
		return slices.Contains(calls, "pexpire") && slices.Contains(calls, "subscribe")
	})
	require.NoError(t, holder.Stdin.Close())
	assert.Equal(t, 1, holder.Wait()) // read found no line
	assert.Equal(t, "mine", waiter.Line())
	assert.Equal(t, 0, waiter.Wait())
	for _, admin := range admins {
		assert.Empty(t, refused(t, admin))
		info, err := admin.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		assert.Contains(t, info, "cmdstat_info:")
	}
}
