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

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// sh is a command line that runs a shell script, which is left when a background process
// of it still runs.
func sh(script string) []string { return []string{"--", "sh", "-c", script} }

// runLock is a command line of leasewheel run whose lease no stall of the machine ends, unless flags shorten it.
func runLock(name string, command []string, flags ...string) []string {
	return slices.Concat([]string{"run", "--ttl", "1h"}, flags, []string{name}, command)
}

func TestRunExitsWithTheCommandsCode(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	for script, code := range map[string]int{
		"exit 75":       75,
		"exit 255":      255,
		"kill -KILL $$": 137,
	} {
		t.Run(script, func(t *testing.T) {
			p := commandtest.Start(t, env, runLock("job", sh(script))...)
			assert.Equal(t, code, p.Wait())
			assert.Empty(t, p.Stderr.String())
		})
	}
}

func TestRunTakesTheCommandAsFlockDoes(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	for name, args := range map[string][]string{
		"behind a dash":         {"run", "job", "--", "echo", "-n", "hello"},
		"without a dash":        {"run", "job", "echo", "-n", "hello"},
		"by -c before NAME":     {"run", "-c", "echo hello | cat", "job"},
		"by -c behind NAME":     {"run", "job", "-c", "echo hello | cat"},
		"dash before NAME":      {"run", "--", "job", "echo", "hello"},
		"with flags of its own": {"run", "-n", "job", "--", "sh", "-c", "echo $0", "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			p := commandtest.Start(t, env, args...)
			assert.Equal(t, 0, p.Wait())
			assert.Equal(t, "hello\n", p.Stdout.String())
		})
	}
}

func TestRunPassesStandardInput(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", []string{"--", "cat"})...)
	fmt.Fprintln(p.Stdin, "through")
	assert.Equal(t, "through", p.Line())
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, 0, p.Wait())
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
		"no line":                {[]string{"job", "-c"}, "-c takes one LINE and nothing after it, got []"},
		"empty line":             {[]string{"job", "-c", ""}, "-c takes one LINE"},
		"line and arguments":     {[]string{"job", "-c", "echo", "a"}, `-c takes one LINE and nothing after it, got ["echo" "a"]`},
		"line and command":       {[]string{"-c", "true", "job", "--", "true"}, "-c and COMMAND exclude each other"},
		"unknown flag":           {with("--frob"), "unknown flag: --frob"},
		"empty name":             {[]string{"", "--", "true"}, "1 to 512 bytes"},
		"huge name":              {[]string{strings.Repeat("x", 600), "--", "true"}, "600 bytes"},
		"name that is not UTF-8": {[]string{"\xff\xfe", "--", "true"}, "not UTF-8"},
		"name with a lone brace": {[]string{"a{b", "--", "true"}, "lone brace"},
		"name with a newline":    {[]string{"a\nb", "--", "true"}, "control character"},
		"zero TTL":               {with("--ttl", "0"), "--ttl 0s"},
		"negative TTL":           {with("--ttl", "-5s"), "accepted are durations from 0 up"},
		"TTL of three ticks":     {with("--ttl", "30ms"), "accepted are 40ms to"},
		"enormous TTL":           {with("--ttl", "2000000h"), "out of range"},
		"overflowing TTL":        {with("--ttl", "1e300"), "accepted are durations like"},
		"TTL that is no number":  {with("--ttl", "NaN"), "accepted are durations like"},
		"TTL that is a word":     {with("--ttl", "soon"), "accepted are durations like"},
		"TTL in hexadecimal":     {with("--ttl", "0x1p4"), "accepted are durations like"},
		"TTL with underscores":   {with("--ttl", "1_0"), "accepted are durations like"},
		"number that is none":    {with("--permits", "many"), `"--permits" flag: accepted are whole numbers`},
		"number, hexadecimal":    {with("-n", "-E", "0x10"), "accepted are whole numbers"},
		"number, of Go's source": {with("-n", "-E", "1_0"), `"1_0" for "-E, --conflict-exit-code" flag: accepted are whole numbers`},
		"number, too long":       {with("-E", strings.Repeat("9", 20)), "accepted are whole numbers of 64 bits"},
		"neither true nor false": {with("-n=maybe"), "accepted are true and false"},
		"server that is unset":   {with("--store", "redis://a", "--store", ""), "--store is empty"},
		"line that is unset":     {with("-c", ""), "--command is empty"},
		"nonblock and wait":      {with("-n", "-w", "1"), "exclude each other"},
		"reader and writer":      {with("-s", "-x"), "exclude each other"},
		"fair and permits":       {with("--fair", "--permits", "2"), "exclude each other"},
		"no permits":             {with("--permits", "0"), "accepted are 1 to 2147483647"},
		"permits, too many":      {with("--permits", "2147483648"), "accepted are 1 to 2147483647"},
		"readers of a quorum":    {with("--read", "--store", "redis://a", "--store", "redis://b", "--store", "redis://c"), "a quorum supports no read lock"},
		"fair and plain":         {with("--fair", "--format", "plain"), "fair lock"},
		"negative wait":          {with("-w", "-1"), "accepted are durations from 0 up"},
		"exit code":              {with("-E", "256"), "accepted are 0 to 255"},
		"on-lost":                {with("--on-lost", "panic"), "accepted are term, kill and ignore"},
		"grace":                  {with("--ttl", "10s", "--grace", "6s"), "accepted are up to 4.9s"},
		"URL and file":           {with("--store", "redis://a", "--store-file", "b"), "exclude each other"},
		"file that is missing":   {with("--store-file", "/nonexistent/url"), "no such file"},
		"empty file":             {with("--store-file", os.DevNull), "is empty"},
		"scheme":                 {with("--store", "http://:"+commandtest.Secret+"@h"), "accepted are redis://"},
		"no scheme":              {with("--store", "localhost:6379"), "accepted are redis://"},
		"port":                   {with("--store", "redis://:"+commandtest.Secret+"@h:notaport"), "cannot be parsed"},
		"slash in the password":  {with("--store", "redis://u:"+commandtest.Secret+"/x@h"), "percent-encoded"},
		"escape in the password": {with("--store", "redis://u:"+commandtest.Secret+"%zz@h"), "percent-encoded"},
		"database":               {with("--store", "redis://:"+commandtest.Secret+"@h/first"), "database is not a number"},
		"option":                 {with("--store", "redis://:"+commandtest.Secret+"@h?frob=1"), "frob"},
		"value of an option":     {with("--store", "redis://h?dial_timeout="+commandtest.Secret), "dial_timeout is not a duration"},
		"CA without TLS":         {with("--store", "redis://h", "--store-ca", os.DevNull), "need a URL for TLS"},
		"CA by valkeys":          {with("--store", "valkeys://h", "--store-ca", os.DevNull), "contains no PEM certificate"},
		"CA that is none":        {with("--store", "rediss://h", "--store-ca", os.DevNull), "contains no PEM certificate"},
		"certificate alone":      {with("--store", "rediss://h", "--store-cert", os.DevNull), "belong together"},
		"certificate that is none": {
			with("--store", "rediss://h", "--store-cert", os.DevNull, "--store-key", os.DevNull), "--store-cert"},
	} {
		t.Run(name, func(t *testing.T) {
			p := commandtest.Call(t, commandtest.Nowhere, slices.Concat([]string{"run"}, test.args)...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine(test.says)
			assert.Contains(t, p.Stderr.String(), "leasewheel run --help")
			assert.Empty(t, p.Stdout.String())
		})
	}
}

func TestRunNeedsAServer(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--prefix", "a:"}, {"--format", "plain"}, {"--store-user", "a"}} {
		p := commandtest.Call(t, nil, runLock("job", sh("true"), flags...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine("--store URL, --store-file FILE or LEASEWHEEL_STORE")
	}
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
		"no-such-command-anywhere": {exit.NotFound, "not found"},
		"/no/such/command":         {exit.NotFound, "not found"},
		plain:                      {exit.CannotExec, "permission denied"},
		os.TempDir():               {exit.CannotExec, "is a directory"},
	} {
		t.Run(command, func(t *testing.T) {
			// The server does not exist: the lock cannot even be requested.
			p := commandtest.Call(t, commandtest.Nowhere, runLock("job", []string{"--", command})...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
		})
	}
}

// Only the attempt shows that a file is of no executable format, or that the interpreter of a script
// is missing, for which env(1) and timeout(1) exit with 127, too. Nothing has run, so that
// --hold-at-least does not keep the lock from another machine.
func TestRunGivesTheLockBackIfTheCommandDoesNotStart(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	garbage, script := filepath.Join(t.TempDir(), "garbage"), filepath.Join(t.TempDir(), "script")
	commandtest.WriteExecutable(t, garbage, "\x7fELF\x00")
	commandtest.WriteExecutable(t, script, "#!/no/such/interpreter\n")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"job", "--", garbage}, exit.CannotExec, "exec format error"},
		{[]string{"--hold-at-least", "2h", "job", "--", garbage}, exit.CannotExec, "exec format error"},
		{[]string{"job", "--", script}, exit.NotFound, "its interpreter was not found"},
	} {
		p := commandtest.Start(t, env, append([]string{"run"}, test.args...)...)
		assert.Equal(t, test.code, p.Wait())
		p.RequireOneLine(test.says)
		held, err := server.Client(t).Exists(commandtest.Bounded(t), "job").Result()
		require.NoError(t, err)
		assert.Zero(t, held, "%v", test.args)
	}
}

// A script without "#!" is run by the shell, as under sh, env(1) and flock(1).
func TestRunOfAScriptWithoutInterpreter(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	script := filepath.Join(t.TempDir(), "script")
	commandtest.WriteExecutable(t, script, "echo \"$0 $*\" $LEASEWHEEL_LOCK_NAME; exit 7\n")
	p := commandtest.Start(t, env, "run", "job", "--", script, "-a", "b c")
	assert.Equal(t, 7, p.Wait())
	assert.Equal(t, script+" -a b c job\n", p.Stdout.String())
	assert.Empty(t, p.Stderr.String())
}

// holder starts a process that holds the lock until the end of its standard input.
func holder(t *testing.T, env []string, flags ...string) *commandtest.Process {
	t.Helper()
	p := commandtest.Start(t, env, runLock("job", sh("echo held; cat"), flags...)...)
	require.Equal(t, "held", p.Line())
	return p
}

func TestRunNotAcquired(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	held := holder(t, env)
	commandtest.Eventually(t, "named", func() bool { // once its record is there, and found within a second
		p := commandtest.Call(t, env, runLock("job", sh("echo ran"), "-n")...)
		return !strings.Contains(p.Stderr.String(), "another owner")
	})
	for name, test := range map[string]struct {
		flags []string
		code  int
		least time.Duration
	}{
		"nonblock":                {[]string{"-n"}, exit.NotAcquired, 0},
		"nonblock, code":          {[]string{"-n", "-E", "9"}, 9, 0},
		"nonblock, decimal code":  {[]string{"-n", "-E", "075"}, 75, 0},
		"nonblock, signed code":   {[]string{"-n", "-E", "+075"}, 75, 0},
		"nonblock, code 0":        {[]string{"-nE0"}, 0, 0},
		"wait zero":               {[]string{"-w", "0"}, exit.NotAcquired, 0},
		"wait, seconds":           {[]string{"-w", "0.3"}, exit.NotAcquired, 300 * time.Millisecond},
		"wait, duration and code": {[]string{"--wait=200ms", "--conflict-exit-code=3"}, 3, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			p := commandtest.Call(t, env, runLock("job", sh("echo ran"), test.flags...)...)
			assert.Equal(t, test.code, p.Wait())
			assert.GreaterOrEqual(t, time.Since(begin), test.least)
			assert.Empty(t, p.Stdout.String())
			if test.code == exit.OK {
				assert.Empty(t, p.Stderr.String(), "cron mails each line")
				return
			}
			p.RequireOneLine(`lock "job" not acquired: held by `)
		})
	}
	require.NoError(t, held.Stdin.Close())
	assert.Equal(t, 0, held.Wait())
}

func TestRunWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	first := holder(t, env)
	second := commandtest.Start(t, env, runLock("job", sh("echo mine"), "--verbose")...)
	second.AwaitError("waiting for lock")
	third := commandtest.Start(t, env, runLock("job", sh("echo mine"), "--verbose", "-w", "1h")...)
	third.AwaitError("waiting for lock")
	assert.Empty(t, second.Stdout.String())
	require.NoError(t, first.Stdin.Close())
	assert.Equal(t, 0, first.Wait())
	assert.Equal(t, 0, second.Wait())
	assert.Equal(t, 0, third.Wait())
	assert.Equal(t, "mine\nmine\n", second.Stdout.String()+third.Stdout.String())
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	// An outer leasewheel's description of its lock must not shine through.
	env = append(env, "LEASEWHEEL_LOCK_NAME=outer", "LEASEWHEEL_LOCK_DEADLINE=1", "KEPT=yes")
	const describe = "env | grep -E '^(LEASEWHEEL_LOCK_|LEASEWHEEL_STORE|KEPT)'"

	variables := func(p *commandtest.Process) map[string]string {
		all := map[string]string{}
		for line := range strings.Lines(p.Stdout.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			assert.NotContains(t, all, name, "twice")
			all[name] = value
		}
		return all
	}
	begin := time.Now()
	p := commandtest.Start(t, env, runLock("job", sh(describe+"; cat"), "--ttl", "20m")...)
	commandtest.Eventually(t, "described", func() bool { return strings.Count(p.Stdout.String(), "\n") == 6 })
	owners, err := server.Client(t).HKeys(commandtest.Bounded(t), "job").Result()
	require.NoError(t, err)
	require.NoError(t, p.Stdin.Close())
	require.Equal(t, 0, p.Wait())
	got := variables(p)
	assert.Equal(t, "job", got["LEASEWHEEL_LOCK_NAME"])
	assert.Equal(t, "1200000", got["LEASEWHEEL_LOCK_TTL"])
	assert.Equal(t, []string{got["LEASEWHEEL_LOCK_OWNER"]}, owners)
	assert.Equal(t, "yes", got["KEPT"])
	assert.NotContains(t, got, "LEASEWHEEL_LOCK_DEADLINE")
	assert.Contains(t, got, connect.URLVariable)
	assert.Empty(t, got[connect.URLVariable])
	fence, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_FENCE"], 10, 64)
	require.NoError(t, err)

	p = commandtest.Start(t, env, runLock("job", sh(describe), "--max-hold", "1h", "--keep-store")...)
	require.Equal(t, 0, p.Wait())
	got = variables(p)
	assert.Equal(t, server.URL(), got[connect.URLVariable])
	later, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_FENCE"], 10, 64)
	require.NoError(t, err)
	assert.Greater(t, later, fence, "the token grows with every grant")
	deadline, err := strconv.ParseInt(got["LEASEWHEEL_LOCK_DEADLINE"], 10, 64)
	require.NoError(t, err)
	assert.WithinRange(t, time.UnixMilli(deadline), begin.Add(time.Hour), time.Now().Add(time.Hour))
}

func TestRunVerbose(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("exit 3"), "-v")...)
	assert.Equal(t, 3, p.Wait())
	for _, says := range []string{`acquired lock "job"`, "fencing token", `released lock "job"`, "exit code 3"} {
		assert.Contains(t, p.Stderr.String(), says)
	}
}

func TestRunReadsTheURLFromAFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Password: commandtest.Secret})
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte(server.URL()+"\n"), 0o600))
	p := commandtest.Start(t, commandtest.Nowhere, runLock("job", sh("echo ran"), "--store-file", file)...)
	assert.Equal(t, 0, p.Wait())
	assert.Equal(t, "ran\n", p.Stdout.String())
}

func TestRunRefusesALabel(t *testing.T) {
	p := commandtest.Call(t, commandtest.Nowhere, runLock("job", sh("true"), "--label", "two\nlines")...)
	assert.Equal(t, exit.Usage, p.Wait())
	assert.Contains(t, p.Stderr.String(), "Label is unfit")
}

// While the command runs the lock is on the server in Redisson's format.
func TestRunHoldsTheLockInRedissonsFormat(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client, ctx := server.Client(t), commandtest.Bounded(t)
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
	require.NoError(t, held.Stdin.Close())
	assert.Equal(t, 0, held.Wait())
	exists, err := client.Exists(ctx, "job").Result()
	require.NoError(t, err)
	assert.Zero(t, exists)
}

// A command that has held its lock for too long is ended, and the lock is given back.
func TestRunMaxHold(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("cat"), "--max-hold", "100ms")...)
	assert.Equal(t, exit.Lost, p.Wait())
	p.RequireReport("--max-hold is over")
	assert.Equal(t, 0, commandtest.Start(t, env, runLock("job", sh("true"), "-n")...).Wait())
}
