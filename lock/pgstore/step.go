package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// step is a step on the state of a name. It is made anew if another request has changed the row
// meanwhile.
type step struct {
	name string
	do   func(s *machine.State, now time.Time) []machine.Message
	row  *row // nil until it was read
	// confirms is set if the answer confirms a change, also one of an earlier request. A synchronous replica may
	// lack that: a request whose context ends while it waits for replicas is committed without them.
	confirms bool
	asks     bool // for a hold: it neither ends one nor keeps one
	saved    bool // it is stored, also if steps fails because of others

	next row
	over *int64
	sent []machine.Message
}

// step makes a step on the state of a name, see [machine.Requests].
func (s *Store) step(ctx context.Context, name string, do func(*machine.State, time.Time) []machine.Message) error {
	return s.inTime(ctx, &step{name: name, do: do, confirms: true})
}

// Count reads or changes a count, see [driver.Counter].
func (s *Store) Count(ctx context.Context, c *driver.Count) (counted driver.Counted, err error) {
	err = s.inTime(ctx, &step{name: c.Name, confirms: c.Op != driver.CountRead, do: func(state *machine.State, now time.Time) (sent []machine.Message) {
		counted, sent = state.Count(now, c)
		return sent
	}})
	return counted, err
}

func (s *Store) inTime(ctx context.Context, st *step) error {
	w, err := s.window(ctx)
	if err != nil {
		return err
	}
	return s.steps(ctx, w, st)
}

// steps makes steps on different names. If it fails, some may be saved. A step that changes nothing
// is saved nevertheless if another request was under way: see settled in schema.sql. A refusal is not saved without
// a subscription of this store for the name: another owner had the row at that instant, and only a waiter would
// miss the message of a release under way. If a step confirms something, the replicas are awaited without a change
// of the row, about which thousands of waiters for a latch that is open would contend. w is when the server may
// carry it out; nil: at any time.
func (s *Store) steps(ctx context.Context, w *window, steps ...*step) error {
	slices.SortFunc(steps, func(a, b *step) int { return cmp.Compare(a.name, b.name) }) // no deadlocks
	give := s.turn(ctx, namesOf(steps)...)
	defer func() { give() }()
	unread := slices.DeleteFunc(slices.Clone(steps), func(st *step) bool { return st.row != nil })
	if err := s.read(ctx, w, unread); err != nil {
		return err
	}
	for conflicts, since := 0, time.Now(); len(steps) > 0; conflicts++ {
		if conflicts > 0 { // the rows may have changed again
			asks := steps[0].asks
			if asks { // other steps of this store go before it meanwhile
				give()
			}
			backoff.Sleep(ctx, backoff.Conflict(conflicts-1, time.Since(since), asks))
			if asks {
				give = s.turn(ctx, namesOf(steps)...)
			}
			since = time.Now()
			if err := s.read(ctx, w, steps); err != nil {
				return err
			}
		}
		changed, confirms := steps[:0], false
		for _, st := range steps {
			if !w.has(st.row.clock) {
				return errLate
			}
			state, err := st.row.machine(st.name)
			if err != nil {
				return err
			}
			st.sent = st.do(state, st.row.now())
			st.over = st.next.set(state)
			settled := st.row.settled || st.asks && !st.confirms && !s.listener.waits(st.name)
			if !settled || !st.next.same(st.row) || len(st.sent) > 0 {
				changed = append(changed, st)
			} else {
				confirms = confirms || st.confirms
			}
		}
		switch steps = changed; {
		case len(steps) > 0: // their commit waits for replicas, too
		case confirms:
			return s.query(ctx, s.sql.confirm, nil, nil)
		default:
			return nil
		}
		if err := s.save(ctx, w, steps); err != nil {
			return err
		}
		steps = slices.DeleteFunc(steps, func(st *step) bool { return st.row == nil })
	}
	return nil
}

// longestTurn is how long a step waits for a turn: one whose request hangs does not block the others.
const longestTurn = time.Second

// turn waits for the turns of names, which are sorted, and returns how to give them back. Once it has
// waited for too long, the step has none.
func (s *Store) turn(ctx context.Context, names ...string) (give func()) {
	ctx, cancel := context.WithTimeout(ctx, longestTurn)
	defer cancel()
	give, err := s.turns.Take(ctx, names...)
	if err != nil {
		return func() {}
	}
	return give
}

// read reads the rows of steps.
func (s *Store) read(ctx context.Context, w *window, steps []*step) error {
	if len(steps) == 0 {
		return nil
	}
	return s.rows(ctx, w, s.sql.read, []any{namesOf(steps)}, steps)
}

func namesOf(steps []*step) []string {
	names := make([]string, len(steps))
	for i, st := range steps {
		names[i] = st.name
	}
	return names
}

// save saves what steps have made, and sends their messages. A step that was saved has no row
// afterwards; another one has the row as it is now.
func (s *Store) save(ctx context.Context, w *window, steps []*step) error {
	n := len(steps)
	names, revs, owners, states, overs := make([]string, n), make([]int64, n), make([]*string, n), make([][]byte, n), make([]*int64, n)
	holds, ends, tokens := make([]int64, n), make([]int64, n), make([]int64, n)
	var ats []int64
	var kinds []int16
	var ofs, messages, wakes []string
	for i, st := range steps {
		names[i], revs[i], states[i], overs[i] = st.name, st.row.rev, st.next.state, st.over
		apart := &st.next.apart
		if holds[i], ends[i], tokens[i] = apart.Holds, apart.Ends, apart.Token; apart.Owner != "" {
			owners[i] = &apart.Owner
		}
		for _, m := range st.sent {
			ats, kinds, ofs = append(ats, int64(i+1)), append(kinds, int16(m.To.Kind)), append(ofs, m.To.Of)
			messages, wakes = append(messages, encode(st.name, m)), append(wakes, encode(st.name, machine.Message{To: m.To}))
		}
	}
	args := []any{names, revs, owners, holds, ends, tokens, states, overs, w.ranged(), ats, kinds, ofs, messages, wakes}
	return s.rows(ctx, w, s.sql.save, args, steps)
}

// rows sends a statement that returns the row of each step, see [Store.save].
// A clock out of w may have a wrong reading.
func (s *Store) rows(ctx context.Context, w *window, sql string, args []any, steps []*step) error {
	sent, got, isLate := time.Now(), 0, false
	err := s.query(ctx, sql, args, func(rows pgx.Rows) error {
		var r row
		var at int
		if err := rows.Scan(r.fields(&at)...); err != nil {
			return err
		}
		if steps[at-1].row = &r; got == 0 {
			s.clock.renew(sent, r.clock, !w.has(r.clock))
		}
		got++
		isLate = isLate || r.verdict == late
		return nil
	})
	switch {
	case err != nil:
		return err
	case got < len(steps):
		return errLost
	}
	for _, st := range steps {
		if st.row.verdict == done {
			st.row, st.saved = nil, true
		}
	}
	s.sweeper.plan()
	if isLate {
		return errLate
	}
	return nil
}

// message is a message to the subscriptions of a store, as JSON.
type message struct {
	Name  string      `json:"name"`
	Kind  driver.Kind `json:"kind"`
	Of    string      `json:"of,omitempty"`
	Grant *grant      `json:"grant,omitempty"`
}

// grant is a grant by a release.
type grant struct {
	Owner    string        `json:"owner"`
	Token    int64         `json:"token"`
	Reserved int64         `json:"reserved,omitempty"`
	TTL      time.Duration `json:"ttl"`
	At       int64         `json:"at"` // µs
}

func encode(name string, m machine.Message) string {
	out := message{Name: name, Kind: m.To.Kind, Of: m.To.Of}
	if n := m.Notice; n.Owner != "" {
		out.Grant = &grant{n.Owner, n.Token, n.Reserved, n.TTL, n.At.UnixMicro()}
	}
	b, _ := json.Marshal(out) //nolint:errchkjson // strings and numbers
	return string(b)
}

func decode(text string) (name string, m machine.Message, err error) {
	var in message
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return "", m, err
	}
	m.To = machine.Topic{Kind: in.Kind, Of: in.Of}
	if g := in.Grant; g != nil {
		m.Notice = driver.Notice{Owner: g.Owner, Token: g.Token, Reserved: g.Reserved, TTL: g.TTL, At: time.UnixMicro(g.At)}
	}
	return in.Name, m, nil
}
