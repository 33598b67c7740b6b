//go:build unix

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/doctor"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// durable configures a server without findings.
func durable() redistest.Config {
	return redistest.Config{AOF: true, Directives: []string{"appendfsync always"}}
}

// tooSlow is the error that a busy machine may add: how long a node of a quorum may take is no flag.
var tooSlow = regexp.MustCompile(`ERROR +latency |"error",[^}]*"topic": *"latency"`)

// diagnose runs doctor and returns its output. A check that the machine held up is repeated, since what took too
// long is a finding, unless it has the wanted result: a busy machine holds up each.
func diagnose(t *testing.T, env []string, code int, args ...string) string {
	t.Helper()
	for begin := time.Now(); ; {
		p := commandtest.Call(t, env, append([]string{"doctor", "--ttl", "10m"}, args...)...)
		got, slow := p.Wait(), tooSlow.MatchString(p.Stdout.String())
		if p.HeldUp && (got != code || slow || code == exit.Broken) && time.Since(begin) < commandtest.Patience {
			continue
		}
		if code == exit.Warned && slow {
			code = exit.Broken
		}
		require.Equal(t, code, got, "%s%s", p.Stdout, p.Stderr)
		assert.Empty(t, p.Stderr.String(), "no progress where there is no terminal")
		assert.NotContains(t, p.Stdout.String(), commandtest.Secret)
		return p.Stdout.String()
	}
}

// diagnoseJSON runs doctor and returns its report, checked against docs/doctor.schema.json.
func diagnoseJSON(t *testing.T, env []string, code int, args ...string) (r doctor.Report) {
	t.Helper()
	text := diagnose(t, env, code, append(args, "--json")...)
	var document any
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	s := commandtest.ReadSchema(t, "doctor")
	require.Empty(t, s.Faults("", document), text)
	require.Empty(t, s.Unnamed("", document), text)
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	return r
}

// The exit code is that of the most severe finding.
func TestDoctor(t *testing.T) {
	t.Parallel()
	config := durable()
	config.TCP, config.Password = true, commandtest.Secret
	server, env := commandtest.OnServer(t, config)
	client := server.Client(t)
	_, address := server.Addr()

	healthy := diagnose(t, env, exit.OK)
	assert.Regexp(t, `^SERVER +VERSION +ROLE +ROUND TRIP +CLOCK\n`+address+` +(redis|valkey) \S+ +master +\S+, at most \S+ +\S.*\n\nno findings\n$`, healthy)
	report := diagnoseJSON(t, env, exit.OK)
	assert.Len(t, report.Servers, 1)
	assert.Empty(t, report.Findings)

	require.NoError(t, client.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
	assert.Contains(t, diagnose(t, env, exit.OK), "\nNOTE  persistence  "+address+"\n  found    appendfsync is everysec\n  promise  one holder: ")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	assert.Regexp(t, `(?s)\nWARNING  eviction .*\nNOTE  persistence `, diagnose(t, env, exit.Warned))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	report = diagnoseJSON(t, env, exit.Broken)
	require.Len(t, report.Findings, 2)
	assert.Equal(t, "error", report.Findings[0].Severity)
	assert.Equal(t, "eviction", report.Findings[0].Topic)
	assert.Equal(t, address, report.Findings[0].Server)
	assert.Zero(t, client.DBSize(t.Context()).Val())
}

// The user that SECURITY.md describes has the rights for its names.
func TestDoctorWithTheLeastRights(t *testing.T) {
	t.Parallel()
	rules := leastUser(t)
	config := durable()
	config.Users = []string{strings.Join(rules, " ")}
	server := redistest.Start(t, config)
	_, socket := server.Addr()
	env := []string{connect.URLVariable + "=unix://" + rules[0] + ":secret@" + socket}
	for _, args := range [][]string{{"orders:"}, {"--prefix", "orders:"}, {"--prefix", "orders:", "job"}} {
		assert.NotContains(t, diagnose(t, env, exit.OK, args...), "ERROR", args)
	}
	assert.Contains(t, diagnose(t, env, exit.OK), "may not use a lock called leasewheel")
	assert.Contains(t, diagnose(t, env, exit.Broken, "payments:"), "the user may not use the keys ")
}

// Several servers are compared, and one of them may be down.
func TestDoctorOfAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := commandtest.OnQuorum(t)
	assert.Contains(t, diagnose(t, env, exit.Warned), "share the host")
	servers[1].Kill()
	report := diagnoseJSON(t, env, exit.Warned)
	assert.Len(t, report.Servers, 2)
	servers[0].Kill()
	assert.Contains(t, diagnose(t, env, exit.Broken), "2 are needed")
	servers[2].Kill()
	p := commandtest.Call(t, env, "doctor")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("servers ")
}

// A server that cannot be examined, and arguments that make no sense, are one line.
func TestDoctorFailures(t *testing.T) {
	t.Parallel()
	config := redistest.Config{TCP: true, Password: commandtest.Secret}
	server, env := commandtest.OnServer(t, config)
	_, address := server.Addr()
	wrong := "redis://:" + commandtest.Secret + "x@" + address
	unused := "redis://:" + commandtest.Secret + "@127.0.0.1:1" // no free port, which another process may take
	for _, test := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"wrong password", exit.Unavailable, "credentials", []string{"--store", wrong}},
		{"no server", exit.Unavailable, "connection refused", []string{"--store", unused}},
		{"no URL", exit.Usage, "URL", []string{"--store", "http://:" + commandtest.Secret + "@x"}},
		{"even", exit.Usage, "2 servers: accepted is one, or an odd number", []string{"--store", wrong, "--store", unused}},
		{"one server twice", exit.Usage, "are one server", []string{"--store", wrong, "--store", unused, "--store", wrong}},
		{"two names", exit.Usage, "one NAME", []string{"a", "b"}},
		{"no name", exit.Usage, "name", []string{"a\nb"}},
		{"no TTL", exit.Usage, "--ttl 0s", []string{"--ttl", "0"}},
		{"a malformed TTL", exit.Usage, "accepted are durations", []string{"--ttl", "soon"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := commandtest.Call(t, env, append([]string{"doctor"}, test.args...)...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
			assert.Empty(t, p.Stdout.String())
		})
	}
	p := commandtest.Call(t, []string{connect.URLVariable + "="}, "doctor")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("no server")
}

// A server that hangs is reported within the check's own limits.
func TestDoctorOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{Password: commandtest.Secret})
	server.Pause()
	defer server.Resume()
	p := commandtest.Call(t, env, "doctor")
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("no answer from the server")
}

// The schema names the topic of every finding, of each engine that is examined, and no other.
func TestDoctorTopics(t *testing.T) {
	t.Parallel()
	topic := regexp.MustCompile(`(?:[sS]everity\w*, |unexamined\(|Topic: )"([a-z_-]+)"`)
	found := map[any]bool{}
	for _, place := range []string{"quorum/check.go", "redisstore/internal/check/*.go", "pgstore/check.go"} {
		files, err := filepath.Glob(filepath.Join(moduleDir(t), "lock", place))
		require.NoError(t, err)
		require.NotEmpty(t, files, place)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, match := range topic.FindAllStringSubmatch(string(text), -1) {
				found[match[1]] = true
			}
		}
	}
	named := commandtest.ReadSchema(t, "doctor").Properties["findings"].Items.Properties["topic"].Enum
	assert.ElementsMatch(t, slices.Collect(maps.Keys(found)), named)
}

// The manual names each severity.
func TestDoctorManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(manual), "\n## leasewheel doctor\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, f := range []driver.Severity{driver.SeverityNote, driver.SeverityWarning, driver.SeverityError} {
		assert.Contains(t, section, f.String())
	}
}
