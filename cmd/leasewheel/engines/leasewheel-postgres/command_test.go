//go:build unix

package main

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

func TestMain(m *testing.M) {
	connect.Register(postgres)
	patient := func() { connect.RequestTimeout = commandtest.Patience }
	commandtest.Main(m, newCommand, patient, patient)
}

// onPostgres starts a server with the schema of locks, and returns the environment that names it.
func onPostgres(t *testing.T) []string {
	t.Helper()
	pgtest.Need(t)
	server := pgtest.Start(t)
	require.NoError(t, pgstore.Migrate(t.Context(), server.Pool(t), pgstore.DefaultSchema))
	return []string{"REDIS_URL=" + server.URL() + "&password=" + commandtest.Secret}
}

// The lock of a command that runs is listed, inspected and taken away; the server is examined.
func TestCommandsOnPostgres(t *testing.T) {
	t.Parallel()
	env := onPostgres(t)
	p := commandtest.Start(t, env, "run", "--on-lost", "ignore", "nightly", "--", "sh", "-c", "echo begun; cat")
	require.Equal(t, "begun", p.Line())
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "ls"), "nightly")
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "inspect", "nightly"), "nightly")
	refused := commandtest.Call(t, env, "run", "-n", "nightly", "--", "true")
	assert.Equal(t, exit.NotAcquired, refused.Wait())
	commandtest.Ask(t, env, exit.OK, "unlock", "--force", "nightly")
	require.NoError(t, p.Stdin.Close())
	p.Wait()
	doctor := commandtest.Call(t, env, "doctor", "--json")
	assert.Contains(t, []int{exit.OK, exit.Broken, exit.Warned}, doctor.Wait())
	assert.Contains(t, doctor.Stdout.String(), "postgresql")
	for _, text := range []string{p.Stderr.String(), doctor.Stdout.String(), doctor.Stderr.String(), refused.Stderr.String()} {
		assert.NotContains(t, text, commandtest.Secret)
	}
}

// What a server of PostgreSQL cannot do, and a URL that is wrong, are refused in one line, without the password.
func TestRefusals(t *testing.T) {
	t.Parallel()
	url := "postgres://me:" + commandtest.Secret + "@127.0.0.1:1/db?connect_timeout=1"
	for what, c := range map[string]struct {
		code   int
		says   string
		args   []string
		change func(url string) string
	}{
		"a format":       {exit.Usage, "is no Redis", []string{"ls", "--format", "plain"}, nil},
		"a prefix":       {exit.Usage, "is no Redis", []string{"ls", "--prefix", "a:"}, nil},
		"a queue":        {exit.Usage, "needs a server of Redis", []string{"queue", "stats", "a"}, nil},
		"no port":        {exit.Usage, "invalid", []string{"ls"}, func(s string) string { return strings.Replace(s, ":1/", ":x"+commandtest.Secret+"/", 1) }},
		"out of reach":   {exit.Unavailable, "127.0.0.1:1", []string{"ls"}, nil},
		"an even number": {exit.Usage, "2 servers", []string{"ls", "--redis", url, "--redis", url + "&application_name=b"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := url
			if c.change != nil {
				url = c.change(url)
			}
			p := commandtest.Call(t, append(os.Environ(), "REDIS_URL="+url), c.args...)
			assert.Equal(t, c.code, p.Wait())
			p.RequireOneLine(c.says)
			assert.NotContains(t, p.Stderr.String(), commandtest.Secret)
		})
	}
}

// A role with no other rights than the printed ones locks, in a schema of any name.
func TestSQL(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	server := pgtest.Start(t)
	admin, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	apply := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	apply(`CREATE ROLE "a shop" LOGIN; REVOKE ALL ON SCHEMA public FROM public`)
	for schema, args := range map[string][]string{
		"leasewheel":  {"sql"},
		`my "locks"$`: {"sql", "--schema", `my "locks"$`},
	} {
		env := []string{"REDIS_URL=postgres:///postgres?user=a%20shop&host=" + server.Dir() + "&leasewheel_schema=" + url.PathEscape(schema)}
		none := commandtest.Call(t, env, "ls")
		assert.Equal(t, exit.Unavailable, none.Wait())
		apply(commandtest.Ask(t, nil, exit.OK, args...))
		refused := commandtest.Call(t, env, "ls")
		assert.Equal(t, exit.Unavailable, refused.Wait())
		apply(commandtest.Ask(t, nil, exit.OK, append(args, "--role", "a shop")...))
		held := commandtest.Start(t, env, "run", "job", "-c", "echo held")
		assert.Equal(t, "held", held.Line())
		assert.Equal(t, exit.OK, held.Wait())
	}
	_, err = admin.Exec(t.Context(), "INSERT INTO leasewheel.migrations (version) VALUES (1000)")
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), commandtest.Ask(t, nil, exit.OK, "sql"), pgx.QueryExecModeSimpleProtocol)
	require.ErrorContains(t, err, "newer version")
	assert.Equal(t, exit.Usage, commandtest.Call(t, nil, "sql", "--schema", "").Wait())
}
