package pgstore

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// Inspect returns the state of a lock, see [driver.Inspector]. It locks nothing.
func (s *Store) Inspect(ctx context.Context, name string, as driver.Kind) (driver.Info, error) {
	found, err := s.look(ctx, s.sql.look, name)
	if err != nil {
		return driver.Info{}, err
	}
	return s.describe(ctx, found[0], as)
}

// namedRow is a row with its name.
type namedRow struct {
	row
	name string
}

// look returns rows in the order of their names.
func (s *Store) look(ctx context.Context, sql string, args ...any) (found []*namedRow, err error) {
	err = s.query(ctx, sql, args, func(rows pgx.Rows) error {
		r := new(namedRow)
		found = append(found, r)
		return rows.Scan(r.fields(&r.name)...)
	})
	return found, err
}

// listPage is how many names List reads at a time.
const listPage = 500

// List yields the held locks, see [driver.Inspector].
func (s *Store) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for last := ""; ; {
			page, err := s.look(ctx, s.sql.list, prefix, last, listPage)
			if err != nil {
				yield(driver.Info{}, fmt.Errorf("list: %w", err))
				return
			}
			for _, r := range page {
				if last = r.name; !strings.HasPrefix(r.name, prefix) {
					return
				}
				if !wanted(r.name) {
					continue
				}
				info, err := s.describe(ctx, r, driver.KindMutex)
				if err != nil {
					info, err = driver.Info{}, fmt.Errorf("list: %w", err)
				}
				if (err != nil || info.Held()) && !yield(info, err) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
		}
	}
}

// describe describes a row.
func (s *Store) describe(ctx context.Context, r *namedRow, as driver.Kind) (info driver.Info, err error) {
	state, err := r.machine(r.name)
	if err != nil {
		return info, err
	}
	info = state.Inspect(r.now(), as)
	return info, s.identify(ctx, r.name, &info)
}

// ForceRelease frees a lock regardless of its holder, see [driver.Inspector].
func (s *Store) ForceRelease(ctx context.Context, name string) (info driver.Info, err error) {
	err = s.step(ctx, name, func(state *machine.State, now time.Time) (sent []machine.Message) {
		info, sent = state.ForceRelease(now)
		return sent
	})
	if err != nil {
		return driver.Info{}, err
	}
	s.identify(ctx, name, &info) //nolint:errcheck // the lock is free: an error would deny it
	return info, nil
}

// identify adds the name, and the records of the clients.
func (s *Store) identify(ctx context.Context, name string, info *driver.Info) (err error) {
	var ids []string
	for _, h := range info.Holders[:min(len(info.Holders), driver.MaxTold)] {
		ids = append(ids, driver.ClientOf(h.Owner))
	}
	for _, w := range info.Waiters[:min(len(info.Waiters), driver.MaxTold)] {
		ids = append(ids, driver.ClientOf(w.Owner))
	}
	records := make(map[string]driver.Client)
	if len(ids) > 0 {
		err = s.query(ctx, s.sql.clients, []any{ids}, func(rows pgx.Rows) error {
			var c driver.Client
			var since int64
			if err := rows.Scan(&c.ID, &c.Host, &c.Process, &c.PID, &c.Label, &since); err != nil {
				return err
			}
			c.Since = time.UnixMicro(since)
			records[c.ID] = c
			return nil
		})
	}
	machine.Identify(info, name, func(id string) (driver.Client, bool) {
		c, announced := records[id]
		return c, announced
	})
	return err
}
