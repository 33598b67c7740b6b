//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	patient := func() {
		connect.ProbeTimeout = commandtest.Patience // all servers that are probed answer, or refuse
		if os.Getenv(impatient) == "" {
			connect.RequestTimeout = commandtest.Patience
		}
	}
	commandtest.Main(m, newCommand, patient, patient)
}

// impatient, set in the environment of a process that the tests start, gives its requests the
// command's own limit, for which a server that fails is asked again.
const impatient = "LEASEWHEEL_TEST_IMPATIENT"

// onPostgres starts a server with the schema of locks, and returns the environment that names it.
func onPostgres(t *testing.T) []string {
	t.Helper()
	pgtest.Need(t)
	server := pgtest.Start(t)
	require.NoError(t, pgstore.Migrate(t.Context(), server.Pool(t), pgstore.DefaultSchema))
	return []string{"LEASEWHEEL_STORE=" + server.URL() + "&password=" + commandtest.Secret}
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
	require.Equal(t, exit.OK, commandtest.Start(t, env, "run", "--permits", "2", "gpu", "--", "true").Wait())
	foreign := commandtest.Call(t, env, "run", "-n", "-E", "0", "gpu", "--", "true")
	assert.Equal(t, exit.Unavailable, foreign.Wait())
	foreign.RequireOneLine("is the number of a semaphore or a latch, not a lock")
	doctor := commandtest.Call(t, env, "doctor", "--json")
	assert.Contains(t, []int{exit.OK, exit.Broken, exit.Warned}, doctor.Wait())
	assert.Contains(t, doctor.Stdout.String(), "postgresql")
	var document any
	require.NoError(t, json.Unmarshal([]byte(doctor.Stdout.String()), &document))
	schema := commandtest.ReadSchema(t, "doctor")
	assert.Empty(t, append(schema.Faults("", document), schema.Unnamed("", document)...))
	for _, text := range []string{p.Stderr.String(), doctor.Stdout.String(), doctor.Stderr.String(), refused.Stderr.String()} {
		assert.NotContains(t, text, commandtest.Secret)
	}
}

// Shells complete this program, which hints name too, and not leasewheel.
func TestNamesItself(t *testing.T) {
	t.Parallel()
	commandtest.RequireNamesItself(t, "leasewheel-postgres")
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
		"a slash":        {exit.Usage, "percent-encode", []string{"ls"}, func(s string) string { return strings.Replace(s, "me:", "me:12/", 1) }},
		"a mark":         {exit.Usage, "percent-encode", []string{"ls"}, func(s string) string { return strings.Replace(s, "me:", "me:12?", 1) }},
		"out of reach":   {exit.Unavailable, "127.0.0.1:1: ", []string{"ls"}, nil},
		"all out of it":  {exit.Unavailable, "127.0.0.1:1, 127.0.0.1:2: ", []string{"ls"}, func(s string) string { return strings.Replace(s, ":1/", ":1,127.0.0.1:2/", 1) }},
		"flags of TLS":   {exit.Usage, "has sslmode, sslrootcert", []string{"ls", "--store-ca", "a"}, nil},
		"sentinels":      {exit.Usage, "needs a redis-sentinel:// URL", []string{"ls", "--store-sentinel-password-file", "a"}, nil},
		"a demo":         {exit.Usage, "needs a server of Redis", []string{"demo", "--store", url}, nil},
		"a bench":        {exit.Usage, "needs a server of Redis", []string{"bench", "lock"}, nil},
		"an even number": {exit.Usage, "2 servers", []string{"ls", "--store", url, "--store", url + "&application_name=b"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := url
			if c.change != nil {
				url = c.change(url)
			}
			p := commandtest.Call(t, append(os.Environ(), "LEASEWHEEL_STORE="+url), c.args...)
			assert.Equal(t, c.code, p.Wait())
			p.RequireOneLine(c.says)
			assert.NotContains(t, p.Stderr.String(), commandtest.Secret)
			assert.NotContains(t, p.Stderr.String(), "me:12")
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
		env := []string{"LEASEWHEEL_STORE=postgres:///postgres?user=a%20shop&host=" + server.Dir() + "&leasewheel_schema=" + url.PathEscape(schema)}
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
	for _, name := range []string{"", strings.Repeat("s", 64)} {
		assert.Equal(t, exit.Usage, commandtest.Call(t, nil, "sql", "--schema", name).Wait())
	}
}

// onPasswords starts a server with the schema of locks that asks the role shop for its password.
func onPasswords(t *testing.T) *pgtest.Server {
	t.Helper()
	pgtest.Need(t)
	server := pgtest.Start(t)
	require.NoError(t, pgstore.Migrate(t.Context(), server.Pool(t), pgstore.DefaultSchema))
	_, err := server.Pool(t).Exec(t.Context(), "CREATE ROLE shop LOGIN PASSWORD '"+commandtest.Secret+"';"+pgstore.Grants(pgstore.DefaultSchema, "shop"), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	rules := filepath.Join(server.Dir(), "data", "pg_hba.conf")
	require.NoError(t, os.WriteFile(rules, []byte("local all postgres trust\nlocal all all scram-sha-256\n"), 0o600)) // the file is there, with its owner
	require.NoError(t, server.Restart())
	return server
}

// What the files of a URL contain is read again for each connection: a password, or a certificate, changes
// while a lock is held.
func TestFilesOfTheURLRotate(t *testing.T) {
	t.Parallel()
	const changed = commandtest.Secret + "-2"
	server := onPasswords(t)
	file := commandtest.PrivateFile(t, "*:*:*:shop:"+commandtest.Secret+"\n")
	opened, err := openPostgres("postgres:///postgres?user=shop&host="+server.Dir()+"&passfile="+file, connect.Access{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, opened.Close()) }()
	ping := opened.Store.(interface {
		Ping(ctx context.Context) error
	}).Ping
	require.Eventually(t, func() bool { return ping(t.Context()) == nil }, commandtest.Patience, 10*time.Millisecond) // to connect has a limit
	_, err = server.Pool(t).Exec(t.Context(), "ALTER ROLE shop PASSWORD '"+changed+"'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("*:*:*:shop:"+changed+"\n"), 0o600))
	var last error
	require.Eventually(t, func() bool { // the pool may still have the connection that was ended
		last = ping(t.Context())
		return last == nil
	}, commandtest.Patience, 10*time.Millisecond, "%v", &last)
	require.NoError(t, os.Remove(file))
	_, err = openPostgres("postgres:///postgres?user=shop&sslrootcert="+file+"&sslmode=verify-full&host=127.0.0.1", connect.Access{})
	require.ErrorContains(t, err, "a file that the postgres:// URL names")
	assert.NotContains(t, err.Error(), file)
}

// The password of a role comes from a file or a command.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := onPasswords(t)
	right, wrong := commandtest.PrivateFile(t, commandtest.Secret+"\n"), commandtest.PrivateFile(t, "wrong")
	for what, c := range map[string]struct {
		code  int
		user  string
		flags []string
	}{
		"file":           {exit.OK, "shop", []string{"--store-password-file", right}},
		"command":        {exit.OK, "shop", []string{"--store-password-command", "cat " + right}},
		"user of a flag": {exit.OK, "postgres", []string{"--store-user", "shop", "--store-password-file", right}},
		"wrong password": {exit.Unavailable, "shop", []string{"--store-password-file", wrong}},
		"no password":    {exit.Unavailable, "shop", nil},
	} {
		t.Run(what, func(t *testing.T) {
			p := commandtest.Start(t, []string{"LEASEWHEEL_STORE=postgres:///postgres?host=" + server.Dir() + "&user=" + c.user},
				slices.Concat([]string{"run"}, c.flags, []string{"a", "--", "true"})...)
			assert.Equal(t, c.code, p.Wait())
			assert.NotContains(t, p.Stderr.String(), commandtest.Secret)
		})
	}
}

// serve starts a server that answers the request for TLS of each connection, and returns its address.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, len(requestTLS)))
			answer(conn)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// run does not wait for what stays wrong: a certificate that is not trusted, a server without TLS.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	secure := serve(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte("S"))
		_ = tls.Server(conn, web.TLS).Handshake() // the client refuses
	})
	plain := serve(t, func(conn net.Conn) { _, _ = conn.Write([]byte("N")) })
	for url, advice := range map[string]string{
		secure + "/db?sslmode=verify-full":            "not trusted: see sslmode, sslrootcert",
		plain + "/db?sslmode=require":                 "speaks no TLS: set ssl=on there",
		plain + "," + plain + "/db?sslmode=verify-ca": "speaks no TLS: set ssl=on there",
	} {
		for _, args := range [][]string{{"ls"}, {"run", "a", "--", "true"}} {
			commandtest.RequireRefused(t, []string{impatient + "=1", "LEASEWHEEL_STORE=postgres://me@" + url}, advice, args...)
		}
	}
}
