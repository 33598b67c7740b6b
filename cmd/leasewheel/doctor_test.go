//go:build unix

package main

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// durable configures a server without findings.
func durable() redistest.Config {
	return redistest.Config{AOF: true, Directives: []string{"appendfsync always"}}
}

// diagnose runs doctor and returns its output.
func diagnose(t *testing.T, env []string, code int, args ...string) string {
	t.Helper()
	p := call(t, env, append([]string{"doctor", "--ttl", "10m"}, args...)...)
	require.Equal(t, code, p.wait(), "%s%s", p.stdout, p.stderr)
	assert.Empty(t, p.stderr.String(), "no progress where there is no terminal")
	assert.NotContains(t, p.stdout.String(), secret)
	return p.stdout.String()
}

// diagnoseJSON runs doctor and returns its report, checked against docs/doctor.schema.json.
func diagnoseJSON(t *testing.T, env []string, code int, args ...string) (r diagnosisReport) {
	t.Helper()
	text := diagnose(t, env, code, append(args, "--json")...)
	var document any
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	s := readSchema(t, "doctor")
	require.Empty(t, s.faults("", document), text)
	require.Empty(t, s.unnamed("", document), text)
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	return r
}

// The exit code is that of the most severe finding.
func TestDoctor(t *testing.T) {
	t.Parallel()
	config := durable()
	config.TCP, config.Password = true, secret
	server, env := onServer(t, config)
	client := server.Client(t)
	_, address := server.Addr()

	healthy := diagnose(t, env, exitOK)
	assert.Regexp(t, `^SERVER +VERSION +ROLE +ROUND TRIP +CLOCK\n`+address+` +(redis|valkey) \S+ +master +\S+, at most \S+ +\S.*\n\nno findings\n$`, healthy)
	report := diagnoseJSON(t, env, exitOK)
	assert.Len(t, report.Servers, 1)
	assert.Empty(t, report.Findings)

	require.NoError(t, client.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
	assert.Contains(t, diagnose(t, env, exitOK), "\nNOTE  persistence  "+address+"\n  found    appendfsync is everysec\n  promise  one holder: ")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	assert.Regexp(t, `(?s)\nWARNING  eviction .*\nNOTE  persistence `, diagnose(t, env, exitWarned))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	report = diagnoseJSON(t, env, exitBroken)
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
	env := []string{redisURLVariable + "=unix://" + rules[0] + ":secret@" + socket}
	for _, args := range [][]string{{"orders:"}, {"--prefix", "orders:"}, {"--prefix", "orders:", "job"}} {
		assert.NotContains(t, diagnose(t, env, exitOK, args...), "ERROR", args)
	}
	assert.Contains(t, diagnose(t, env, exitOK), "may not use a lock called leasewheel")
	assert.Contains(t, diagnose(t, env, exitBroken, "payments:"), "the user may not use the keys ")
}

// Several servers are compared, and one of them may be down.
func TestDoctorOfAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	assert.Contains(t, diagnose(t, env, exitWarned), "share the host")
	servers[1].Kill()
	report := diagnoseJSON(t, env, exitWarned)
	assert.Len(t, report.Servers, 2)
	servers[0].Kill()
	assert.Contains(t, diagnose(t, env, exitBroken), "2 are needed")
	servers[2].Kill()
	p := call(t, env, "doctor")
	assert.Equal(t, exitUnavailable, p.wait())
	p.requireOneLine("servers ")
}

// A server that cannot be examined, and arguments that make no sense, are one line.
func TestDoctorFailures(t *testing.T) {
	t.Parallel()
	config := redistest.Config{TCP: true, Password: secret}
	server, env := onServer(t, config)
	_, address := server.Addr()
	wrong := "redis://:" + secret + "x@" + address
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	unused := "redis://:" + secret + "@" + listener.Addr().String()
	require.NoError(t, listener.Close())
	for _, test := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"wrong password", exitUnavailable, "credentials", []string{"--redis", wrong}},
		{"no server", exitUnavailable, "connection refused", []string{"--redis", unused}},
		{"no URL", exitUsage, "URL", []string{"--redis", "http://:" + secret + "@x"}},
		{"even", exitUsage, "2 servers: accepted is one, or an odd number", []string{"--redis", wrong, "--redis", unused}},
		{"one server twice", exitUsage, "are one server", []string{"--redis", wrong, "--redis", unused, "--redis", wrong}},
		{"two names", exitUsage, "one NAME", []string{"a", "b"}},
		{"no name", exitUsage, "name", []string{"a\nb"}},
		{"no TTL", exitUsage, "--ttl 0s", []string{"--ttl", "0"}},
		{"a malformed TTL", exitUsage, "accepted are durations", []string{"--ttl", "soon"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := call(t, env, append([]string{"doctor"}, test.args...)...)
			assert.Equal(t, test.code, p.wait())
			p.requireOneLine(test.says)
			assert.Empty(t, p.stdout.String())
		})
	}
	p := call(t, []string{redisURLVariable + "="}, "doctor")
	assert.Equal(t, exitUsage, p.wait())
	p.requireOneLine("no server")
}

// A server that hangs is reported within the check's own limits.
func TestDoctorOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{Password: secret})
	server.Pause()
	defer server.Resume()
	p := call(t, env, "doctor")
	assert.Equal(t, exitUnavailable, p.wait())
	p.requireOneLine("no answer from the server")
}

// What a server reports cannot act upon a terminal.
func TestDiagnosisIsPrintable(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\u202e\n"
	r := driver.Report{
		Servers:  []driver.Server{{Address: evil, Version: evil, Role: evil, ID: evil}},
		Findings: []driver.Finding{{Server: evil, Topic: evil, Found: evil, Promise: evil, Advice: evil}},
	}
	var text, document strings.Builder
	require.NoError(t, writeDiagnosis(&text, &r))
	require.NoError(t, writeDiagnosisJSON(&document, &r))
	for _, out := range []string{text.String(), document.String()} {
		assert.NotContains(t, out, "\x1b")
		assert.NotContains(t, out, "\u202e")
	}
	assert.Equal(t, 7, strings.Count(text.String(), "\n"))
}

// The manual names each exit code of the command's help.
func TestDoctorManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(manual), "\n## leasewheel doctor\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, code := range []int{exitOK, exitBroken, exitWarned, exitUsage, exitUnavailable} {
		assert.Contains(t, section, "\n| "+itoa(code)+" | ")
		assert.Contains(t, doctorLong, "\n  "+itoa(code)+" ")
	}
	for _, f := range []driver.Severity{driver.SeverityNote, driver.SeverityWarning, driver.SeverityError} {
		assert.Contains(t, section, f.String())
	}
}
