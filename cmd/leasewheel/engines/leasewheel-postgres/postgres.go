package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// postgres is the row of PostgreSQL: postgres://user@host/database?leasewheel_schema=NAME. All other
// parameters are those of libpq, also passwords by passfile and the variables PG….
var postgres = connect.Engine{Schemes: []string{"postgres", "postgresql"}, TLS: "sslmode, sslrootcert, sslcert and sslkey", Open: openPostgres}

// schemaParameter names the schema of the locks in a URL.
const schemaParameter = "leasewheel_schema"

// hostTimeout is how long each host of a URL may take to accept a connection, unless connect_timeout names
// that: one that hangs, as a former primary may, would otherwise keep connections from the others.
const hostTimeout = 5 * time.Second

func openPostgres(rawURL string, a connect.Access) (connect.Opened, error) {
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return connect.Opened{}, withoutURL(err)
	}
	if hasOpenPassword(rawURL) {
		return connect.Opened{}, errors.New("the postgres:// URL is invalid: of a password, percent-encode / ? and #, and elsewhere @")
	}
	schema := config.ConnConfig.RuntimeParams[schemaParameter]
	delete(config.ConnConfig.RuntimeParams, schemaParameter)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "leasewheel"
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, hostTimeout)
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		now, err := pgxpool.ParseConfig(rawURL) // with what its files contain now
		if err != nil {
			return withoutURL(err)
		}
		c.TLSConfig, c.Fallbacks, c.Password = now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks, now.ConnConfig.Password
		if a.Credentials == nil {
			return nil
		}
		user, password, err := a.Credentials(ctx)
		c.User, c.Password = cmp.Or(user, c.User), password
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return connect.Opened{}, withoutURL(err)
	}
	store, err := pgstore.New(pool, pgstore.Config{Schema: schema, Logger: a.Logger})
	if err != nil {
		pool.Close()
		return connect.Opened{}, err
	}
	return connect.Opened{
		Store:   store,
		Address: store.Address(),
		Close: func() error {
			defer pool.Close()
			return store.Close()
		},
		Probe: func(ctx context.Context) (string, error) { return probe(ctx, &config.ConnConfig.Config), nil },
	}, nil
}

// hasOpenPassword reports whether what a URL has behind its hosts may be a part of a password, of which
// another part would be a host then: it has an @ outside of the values of parameters.
func hasOpenPassword(rawURL string) bool {
	_, rest, _ := strings.Cut(rawURL, "://")
	rest = strings.TrimLeftFunc(rest, func(r rune) bool { return !strings.ContainsRune("/?#", r) })
	path, parameters, _ := strings.Cut(rest, "?")
	name, _, _ := strings.Cut(parameters, "=")
	return strings.Contains(path+name, "@")
}

// requestTLS is the message by which a connection asks for TLS. A server without it answers N.
const requestTLS = "\x00\x00\x00\x08\x04\xd2\x16\x2f"

// probe returns advice if the URL wants TLS of every host, and none has it.
func probe(ctx context.Context, c *pgconn.Config) (advice string) {
	for _, host := range append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...) {
		if host.TLSConfig == nil {
			return ""
		}
		first, err := connect.Greet(ctx, net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port))), nil, requestTLS)
		if err != nil || first != 'N' {
			return ""
		}
	}
	return "speaks no TLS: set ssl=on there, or another sslmode in the URL"
}

// withoutURL returns what is wrong with a URL, without any part of it: pgx hides its password alone,
// and only where the URL has its usual form.
func withoutURL(err error) error {
	if file, unread := errors.AsType[*fs.PathError](err); unread {
		return fmt.Errorf("a file that the postgres:// URL names, or one in its place, cannot be used: %w", file.Err)
	}
	if _, invalid := errors.AsType[*pgconn.ParseConfigError](err); invalid {
		return errors.New("the postgres:// URL is invalid")
	}
	return errors.New("the postgres:// URL cannot be used")
}
