package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// Verdicts of the functions of schema.sql.
const (
	late    = -2
	decide  = -1 // the machine does
	refused = 0
	done    = 1
)

// row is a name's row at an instant, with the living subscriptions.
type row struct {
	verdict int
	clock   int64 // µs
	rev     int64
	apart   machine.Apart
	state   []byte
	kinds   []driver.Kind
	ofs     []string
	stores  []int64
	settled bool // no transaction under way had locked it
}

// fields are those of the columns.
func (r *row) fields(more ...any) []any {
	return append([]any{&r.verdict, &r.clock, &r.rev, (*zeronull.Text)(&r.apart.Owner), &r.apart.Holds, &r.apart.Ends, &r.apart.Token, &r.state, &r.kinds, &r.ofs, &r.stores, &r.settled}, more...)
}

func (r *row) now() time.Time { return time.UnixMicro(r.clock) }

// wait returns for how long the lock's lease lasts.
func (r *row) wait() time.Duration {
	return time.Duration(max(r.apart.Ends-r.clock/1000, 1)) * time.Millisecond
}

// coding is the first byte of a state.
const coding = 1

// machine returns the state of the name.
func (r *row) machine(name string) (*machine.State, error) {
	s := &machine.State{Listening: r.listening}
	if len(r.state) > 0 && (r.state[0] != coding || !machine.Decode(r.state[1:], s.Code)) {
		return nil, fmt.Errorf("pgstore: the row of %q is damaged, or of another version: %w", name, driver.ErrNotDone)
	}
	s.Join(r.apart)
	return s, nil
}

// listening returns how many stores are subscribed to a topic.
func (r *row) listening(t machine.Topic) int {
	stores := make(map[int64]bool)
	for i, store := range r.stores {
		if r.kinds[i] == t.Kind && r.ofs[i] == t.Of {
			stores[store] = true
		}
	}
	return len(stores)
}

// set takes the columns from a state.
func (r *row) set(s *machine.State) (over *int64) {
	if ends, ok := s.Ends(); ok {
		ms := ends.UnixMilli()
		over = &ms
	}
	apart, plain := s.Split()
	if r.apart, r.state = apart, nil; !plain {
		r.state = append([]byte{coding}, machine.Encode(s.Code)...)
	}
	return over
}

// same reports whether the columns of two rows are the same.
func (r *row) same(other *row) bool {
	return r.apart == other.apart && string(r.state) == string(other.state)
}

const (
	firstPause = time.Millisecond
	mostPause  = 50 * time.Millisecond
)

// query sends a statement, and has scan, if there is one, read each row. One that was rolled back for the sake of
// others is sent again.
func (s *Store) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	for failures := 1; ; failures++ {
		used := s.clock.reading.Load()
		err := s.queryOnce(ctx, sql, args, scan)
		if errors.Is(err, errLate) {
			s.clock.reading.CompareAndSwap(used, nil) // it may be wrong
		}
		if !repeats(ctx, err, failures) || !backoff.Sleep(ctx, backoff.Pause(failures, firstPause, mostPause)) {
			return err
		}
	}
}

func (s *Store) queryOnce(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	if s.ending.Err() != nil {
		return errClosed
	}
	var err error
	unused := s.pool.use(ctx, func(conn *pgx.Conn) {
		if err = readAll(ctx, conn, sql, args, scan); err != nil && ctx.Err() == nil && ofSettings(conn, err) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			conn.Close(ctx) // the next request has another one
		}
	})
	return cmp.Or(answerOf(unused, false), err)
}

func readAll(ctx context.Context, conn *pgx.Conn, sql string, args []any, scan func(pgx.Rows) error) error {
	reported := conn.PgConn().ParameterStatus
	mode := conn.Config().DefaultQueryExecMode
	simple := mode == pgx.QueryExecModeSimpleProtocol // pgx sends nothing then
	switch {
	case reported("client_encoding") != "UTF8" && (reported("server_encoding") != "SQL_ASCII" || simple): // another lock of the same name
		return unfit("client_encoding to UTF8")
	case reported("standard_conforming_strings") != "on" && simple:
		return unfit("standard_conforming_strings to on")
	case mode == pgx.QueryExecModeDescribeExec: // a proxy could run another client's statement in place of the one described
		args = slices.Concat([]any{pgx.QueryExecModeExec}, args)
	}
	rows, _ := conn.Query(ctx, sql, args...) // rows have its error
	defer rows.Close()
	for rows.Next() {
		if scan == nil {
			continue
		}
		switch err := scan(rows); {
		case errors.Is(err, driver.ErrNotDone): // it is about what was read
			return err
		case err != nil:
			return fmt.Errorf("pgstore: %w", err)
		}
	}
	return answerOf(rows.Err(), true)
}

// request sends a statement of which each reply is a row, and keeps its clock.
func (s *Store) request(ctx context.Context, sql string, args []any, r *row, more ...any) error {
	sent := time.Now()
	if err := s.query(ctx, sql, args, func(rows pgx.Rows) error { return rows.Scan(r.fields(more...)...) }); err != nil {
		return err
	}
	s.clock.renew(sent, r.clock, r.verdict == late)
	s.sweeper.plan()
	if r.verdict == late {
		return errLate
	}
	return nil
}

// errLost reports that a server has answered with too few rows.
var errLost = errors.New("pgstore: the server has answered with too few rows: a proxy may alter replies")
