package pgstore

import (
	"context"
	"database/sql"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// pool is where a store's requests get their connections.
type pool interface {
	// use has f use a connection. Its error means that there was none.
	use(ctx context.Context, f func(*pgx.Conn)) error
	// config returns how the pool connects. It belongs to the caller.
	config(ctx context.Context) (*pgx.ConnConfig, error)
	// address returns the hosts and ports that it may connect to, "" if that is not known.
	address() string
}

type pgxPool struct{ *pgxpool.Pool }

func (p pgxPool) use(ctx context.Context, f func(*pgx.Conn)) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	f(conn.Conn())
	return nil
}

func (p pgxPool) config(ctx context.Context) (*pgx.ConnConfig, error) {
	c := p.Config()
	if c.BeforeConnect == nil {
		return c.ConnConfig, nil
	}
	return c.ConnConfig, c.BeforeConnect(ctx, c.ConnConfig)
}

func (p pgxPool) address() string {
	c := p.Config().ConnConfig
	all := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, f := range c.Fallbacks { // also the same host without TLS
		all = append(all, net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))))
	}
	return strings.Join(slices.Compact(all), ", ")
}

// sqlPool is a pool of database/sql whose driver is that of pgx.
type sqlPool struct{ *sql.DB }

func (p sqlPool) use(ctx context.Context, f func(*pgx.Conn)) error {
	c, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Raw(func(of any) error {
		f(of.(*stdlib.Conn).Conn())
		return nil
	})
}

func (p sqlPool) config(ctx context.Context) (c *pgx.ConnConfig, err error) {
	err = p.use(ctx, func(conn *pgx.Conn) { c = conn.Config() })
	return c, err
}

func (sqlPool) address() string { return "" }
