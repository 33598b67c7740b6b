//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// nowhere names a server that no test may contact.
var nowhere = []string{redisURLVariable + "=redis://:" + secret + "@127.0.0.1:1"}

func itoa(n int) string { return strconv.Itoa(n) }

// sh is a command line that runs a shell script, which is left when a background process
// of it still runs.
func sh(script string) []string { return []string{"--", "sh", "-c", script} }

// run is a command line whose lease no stall of the machine ends, unless flags shorten it.
func run(name string, command []string, flags ...string) []string {
	return slices.Concat([]string{"run", "--ttl", "1h"}, flags, []string{name}, command)
}

func TestRunExitsWithTheCommandsCode(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	for script, code := range map[string]int{
		"exit 75":       75,
		"exit 255":      255,
		"kill -KILL $$": 137,
	} {
		t.Run(script, func(t *testing.T) {
			p := start(t, env, run("job", sh(script))...)
			assert.Equal(t, code, p.wait())
			assert.Empty(t, p.stderr.String())
		})
	}
}

func TestRunTakesTheCommandAsFlockDoes(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	for name, args := range map[string][]string{
		"behind a dash":         {"run", "job", "--", "echo", "-n", "hello"},
		"without a dash":        {"run", "job", "echo", "-n", "hello"},
		"by -c before NAME":     {"run", "-c", "echo hello | cat", "job"},
		"by -c behind NAME":     {"run", "job", "-c", "echo hello | cat"},
		"dash before NAME":      {"run", "--", "job", "echo", "hello"},
		"with flags of its own": {"run", "-n", "job", "--", "sh", "-c", "echo $0", "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, env, args...)
			assert.Equal(t, 0, p.wait())
			assert.Equal(t, "hello\n", p.stdout.String())
		})
	}
}

func TestRunPassesStandardInput(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	p := start(t, env, run("job", []string{"--", "cat"})...)
	fmt.Fprintln(p.stdin, "through")
	assert.Equal(t, "through", p.line())
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, 0, p.wait())
}

// Each mistake in the arguments is one clear line and exit code 64, before any request to
// a server.
func TestRunRefusesArguments(t *testing.T) {
	t.Parallel()
	job := []string{"job", "--", "true"}
	with := func(flags ...string) []string { return slices.Concat(flags, job) }
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"nothing":                {nil, "NAME is missing"},
		"no command":             {[]string{"job"}, "COMMAND is missing"},
		"no command after dash":  {[]string{"job", "--"}, "COMMAND is missing"},
		"empty command":          {[]string{"job", "--", ""}, "COMMAND is missing"},
		"flag behind the name":   {[]string{"job", "-n", "--", "true"}, "-n: flags precede NAME"},
		"line and command":       {[]string{"-c", "true", "job", "--", "true"}, "-c and COMMAND exclude each other"},
		"unknown flag":           {with("--frob"), "unknown flag: --frob"},
		"empty name":             {[]string{"", "--", "true"}, "1 to 512 bytes"},
		"huge name":              {[]string{strings.Repeat("x", 600), "--", "true"}, "600 bytes"},
		"name that is not UTF-8": {[]string{"\xff\xfe", "--", "true"}, "not UTF-8"},
		"name with a lone brace": {[]string{"a{b", "--", "true"}, "lone brace"},
		"name with a newline":    {[]string{"a\nb", "--", "true"}, "control character"},
		"zero TTL":               {with("--ttl", "0"), "--ttl 0s"},
		"negative TTL":           {with("--ttl", "-5s"), "accepted are durations from 0 up"},
		"TTL of three ticks":     {with("--ttl", "30ms"), "at least 40ms"},
		"enormous TTL":           {with("--ttl", "2000000h"), "at most"},
		"overflowing TTL":        {with("--ttl", "1e300"), "accepted are durations like"},
		"TTL that is no number":  {with("--ttl", "NaN"), "accepted are durations like"},
		"TTL that is a word":     {with("--ttl", "soon"), "accepted are durations like"},
		"nonblock and wait":      {with("-n", "-w", "1"), "exclude each other"},
		"reader and writer":      {with("-s", "-x"), "exclude each other"},
		"fair and permits":       {with("--fair", "--permits", "2"), "exclude each other"},
		"no permits":             {with("--permits", "0"), "accepted are 1 to 2147483647"},
		"permits, too many":      {with("--permits", "2147483648"), "accepted are 1 to 2147483647"},
		"readers of a quorum":    {with("--read", "--redis", "redis://a", "--redis", "redis://b", "--redis", "redis://c"), "a quorum supports no read lock"},
		"fair and plain":         {with("--fair", "--format", "plain"), "fair lock"},
		"negative wait":          {with("-w", "-1"), "accepted are durations from 0 up"},
		"exit code":              {with("-E", "256"), "accepted are 0 to 255"},
		"on-lost":                {with("--on-lost", "panic"), "accepted are term, kill and ignore"},
		"grace":                  {with("--ttl", "10s", "--grace", "6s"), "accepted are up to 4.9s"},
		"URL and file":           {with("--redis", "redis://a", "--redis-file", "b"), "exclude each other"},
		"file that is missing":   {with("--redis-file", "/nonexistent/url"), "no such file"},
		"empty file":             {with("--redis-file", os.DevNull), "is empty"},
		"scheme":                 {with("--redis", "http://:"+secret+"@h"), "accepted are redis://"},
		"no scheme":              {with("--redis", "localhost:6379"), "accepted are redis://"},
		"port":                   {with("--redis", "redis://:"+secret+"@h:notaport"), "cannot be parsed"},
		"slash in the password":  {with("--redis", "redis://u:"+secret+"/x@h"), "percent-encoded"},
		"escape in the password": {with("--redis", "redis://u:"+secret+"%zz@h"), "percent-encoded"},
		"database":               {with("--redis", "redis://:"+secret+"@h/first"), "database is not a number"},
		"option":                 {with("--redis", "redis://:"+secret+"@h?frob=1"), "frob"},
		"value of an option":     {with("--redis", "redis://h?dial_timeout="+secret), "dial_timeout is not a duration"},
		"CA without TLS":         {with("--redis", "redis://h", "--redis-ca", os.DevNull), "need a rediss:// URL"},
		"CA by valkeys":          {with("--redis", "valkeys://h", "--redis-ca", os.DevNull), "contains no PEM certificate"},
		"CA that is none":        {with("--redis", "rediss://h", "--redis-ca", os.DevNull), "contains no PEM certificate"},
		"certificate alone":      {with("--redis", "rediss://h", "--redis-cert", os.DevNull), "belong together"},
		"certificate that is none": {
			with("--redis", "rediss://h", "--redis-cert", os.DevNull, "--redis-key", os.DevNull), "--redis-cert"},
	} {
		t.Run(name, func(t *testing.T) {
			p := call(t, nowhere, slices.Concat([]string{"run"}, test.args)...)
			assert.Equal(t, exitUsage, p.wait())
			p.requireOneLine(test.says)
			assert.Contains(t, p.stderr.String(), "leasewheel run --help")
			assert.Empty(t, p.stdout.String())
		})
	}
}

func TestRunNeedsAServer(t *testing.T) {
	t.Parallel()
	p := call(t, nil, run("job", sh("true"))...)
	assert.Equal(t, exitUsage, p.wait())
	p.requireOneLine("--redis URL, --redis-file FILE or REDIS_URL")
}

// A command that cannot run is detected before the wait for its lock.
func TestRunLooksForTheCommandBeforeItTakesTheLock(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("not executable"), 0o600))
	for command, test := range map[string]struct {
		code int
		says string
	}{
		"no-such-command-anywhere": {exitNotFound, "not found"},
		"/no/such/command":         {exitNotFound, "not found"},
		plain:                      {exitCannotExec, "permission denied"},
		os.TempDir():               {exitCannotExec, "is a directory"},
	} {
		t.Run(command, func(t *testing.T) {
			// The server does not exist: the lock cannot even be requested.
			p := call(t, nowhere, run("job", []string{"--", command})...)
			assert.Equal(t, test.code, p.wait())
			p.requireOneLine(test.says)
		})
	}
}

// Only the attempt shows that a file is of no executable format.
func TestRunGivesTheLockBackIfTheCommandDoesNotStart(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte{0x7f, 'n', 'o'}, 0o700))
	p := start(t, env, run("job", []string{"--", garbage})...)
	assert.Equal(t, exitCannotExec, p.wait())
	p.requireOneLine("exec format error")
	held, err := server.Client(t).Exists(bounded(t), "job").Result()
	require.NoError(t, err)
	assert.Zero(t, held)
}

// holder starts a process that holds the lock until the end of its standard input.
func holder(t *testing.T, env []string, flags ...string) *process {
	t.Helper()
	p := start(t, env, run("job", sh("echo held; cat"), flags...)...)
	require.Equal(t, "held", p.line())
	return p
}

func TestRunNotAcquired(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	held := holder(t, env)
	for name, test := range map[string]struct {
		flags []string
		code  int
		least time.Duration
	}{
		"nonblock":                {[]string{"-n"}, exitNotAcquired, 0},
		"nonblock, code":          {[]string{"-n", "-E", "9"}, 9, 0},
		"nonblock, code 0":        {[]string{"-nE0"}, 0, 0},
		"wait zero":               {[]string{"-w", "0"}, exitNotAcquired, 0},
		"wait, seconds":           {[]string{"-w", "0.3"}, exitNotAcquired, 300 * time.Millisecond},
		"wait, duration and code": {[]string{"--wait=200ms", "--conflict-exit-code=3"}, 3, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			p := call(t, env, run("job", sh("echo ran"), test.flags...)...)
			assert.Equal(t, test.code, p.wait())
			assert.GreaterOrEqual(t, time.Since(begin), test.least)
			assert.Empty(t, p.stdout.String())
			p.requireOneLine("held by another owner")
		})
	}
	require.NoError(t, held.stdin.Close())
	assert.Equal(t, 0, held.wait())
}

func TestRunWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	first := holder(t, env)
	second := start(t, env, run("job", sh("echo mine"), "--verbose")...)
	second.awaitError("waiting for lock")
	third := start(t, env, run("job", sh("echo mine"), "--verbose", "-w", "1h")...)
	third.awaitError("waiting for lock")
	assert.Empty(t, second.stdout.String())
	require.NoError(t, first.stdin.Close())
	assert.Equal(t, 0, first.wait())
	assert.Equal(t, 0, second.wait())
	assert.Equal(t, 0, third.wait())
	assert.Equal(t, "mine\nmine\n", second.stdout.String()+third.stdout.String())
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	// An outer leasewheel's description of its lock must not shine through.
	env = append(env, "LEASEWHEEL_LOCK_NAME=outer", "LEASEWHEEL_LOCK_DEADLINE=1", "KEPT=yes")
	const describe = "env | grep -E '^(LEASEWHEEL_LOCK_|REDIS_URL|KEPT)'"

	variables := func(p *process) map[string]string {
		all := map[string]string{}
		for line := range strings.Lines(p.stdout.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			assert.NotContains(t, all, name, "twice")
			all[name] = value
		}
		return all
	}
	begin := time.Now()
	p := start(t, env, run("job", sh(describe+"; cat"), "--ttl", "20m")...)
	eventually(t, "described", func() bool { return strings.Count(p.stdout.String(), "\n") == 5 })
	owners, err := server.Client(t).HKeys(bounded(t), "job").Result()
	require.NoError(t, err)
	require.NoError(t, p.stdin.Close())
	require.Equal(t, 0, p.wait())
	got := variables(p)
	assert.Equal(t, "job", got["LEASEWHEEL_LOCK_NAME"])
	assert.Equal(t, "1200000", got["LEASEWHEEL_LOCK_TTL"])
	assert.Equal(t, []string{got["LEASEWHEEL_LOCK_OWNER"]}, owners)
	assert.Equal(t, "yes", got["KEPT"])
	assert.NotContains(t, got, "LEASEWHEEL_LOCK_DEADLINE")
	assert.NotContains(t, got, redisURLVariable)
	fence, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_FENCE"], 10, 64)
	require.NoError(t, err)

	p = start(t, env, run("job", sh(describe), "--max-hold", "1h", "--keep-redis-url")...)
	require.Equal(t, 0, p.wait())
	got = variables(p)
	assert.Equal(t, server.URL(), got[redisURLVariable])
	later, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_FENCE"], 10, 64)
	require.NoError(t, err)
	assert.Greater(t, later, fence, "the token grows with every grant")
	deadline, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_DEADLINE"], 10, 64)
	require.NoError(t, err)
	assert.WithinRange(t, time.UnixMilli(deadline), begin.Add(time.Hour), time.Now().Add(time.Hour))
}

func TestRunVerbose(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	p := start(t, env, run("job", sh("exit 3"), "-v")...)
	assert.Equal(t, 3, p.wait())
	for _, says := range []string{`acquired lock "job"`, "fencing token", `released lock "job"`, "exit code 3"} {
		assert.Contains(t, p.stderr.String(), says)
	}
}

func TestRunReadsTheURLFromAFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Password: secret})
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte(server.URL()+"\n"), 0o600))
	p := start(t, nowhere, run("job", sh("echo ran"), "--redis-file", file)...)
	assert.Equal(t, 0, p.wait())
	assert.Equal(t, "ran\n", p.stdout.String())
}

// A label is made of any executable's name.
func TestRunLabelsItsCommand(t *testing.T) {
	for name, label := range map[string]string{"/usr/bin/backup": "backup", "./näh": "näh", "a\xff\x1b[2J": "a??[2J", "/": "/"} {
		assert.Equal(t, label, labelOf(name))
	}
	p := call(t, nowhere, run("job", sh("true"), "--label", "two\nlines")...)
	assert.Equal(t, exitUsage, p.wait())
	assert.Contains(t, p.stderr.String(), "Label is unfit")
}

// While the command runs the lock is on the server in Redisson's format.
func TestRunHoldsTheLockInRedissonsFormat(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client, ctx := server.Client(t), bounded(t)
	held := holder(t, env)
	fields, err := client.HGetAll(ctx, "job").Result()
	require.NoError(t, err)
	require.Len(t, fields, 1)
	for owner, count := range fields {
		assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`, owner)
		assert.Equal(t, "1", count)
	}
	left, err := client.PTTL(ctx, "job").Result()
	require.NoError(t, err)
	require.Positive(t, left)
	require.NoError(t, held.stdin.Close())
	assert.Equal(t, 0, held.wait())
	exists, err := client.Exists(ctx, "job").Result()
	require.NoError(t, err)
	assert.Zero(t, exists)
}

// A command that has held its lock for too long is ended, and the lock is given back.
func TestRunMaxHold(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	p := start(t, env, run("job", sh("cat"), "--max-hold", "100ms")...)
	assert.Equal(t, exitLost, p.wait())
	p.requireReport("--max-hold is over")
	assert.Equal(t, 0, start(t, env, run("job", sh("true"), "-n")...).wait())
}
