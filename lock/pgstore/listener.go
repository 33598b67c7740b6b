package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// listener has a store's subscriptions, and the connection on which their messages arrive. Each
// connection has a number: its channel has it in its name, the rows of waits name it, and the
// connection holds the advisory lock with it, so that others know whether it lives.
type listener struct {
	s       *Store
	every   time.Duration // see probeEvery; tests shorten it
	touched chan struct{} // rows of waits are to be changed
	number  int64         // of the last connection, 0 if there was none; of the goroutine of run

	mu      sync.Mutex
	running bool
	names   map[string]machine.Subscribers    // guarded by mu
	changes map[string]bool                   // guarded by mu; names whose rows may have to change
	rows    map[string]map[machine.Topic]bool // guarded by mu; nil before the first connection; that the server has: true; that it may have: false
	changed chan struct{}                     // guarded by mu; closed when rows change, or a connection fails
	failed  error                             // guarded by mu; why the last connection, or change of rows, failed; nil after one that did not
}

// place is a name's topic.
type place struct {
	name string
	machine.Topic
}

const (
	// connectTimeout bounds the making of a connection, and an answer on it.
	connectTimeout = 5 * time.Second
	// probeEvery is how often a silent connection is tried, and how often the server is asked for the
	// connection's lock and rows.
	probeEvery = 10 * time.Second
	// firstReconnect and mostReconnect bound the pause before another connection is made.
	firstReconnect, mostReconnect = 10 * time.Millisecond, time.Second
)

func newListener(s *Store) *listener {
	return &listener{
		s: s, every: probeEvery, touched: make(chan struct{}, 1), names: make(map[string]machine.Subscribers),
		changes: make(map[string]bool), changed: make(chan struct{}),
	}
}

// subscription is one to the topics of a waiter.
type subscription struct {
	machine.Subscriber
	l    *listener
	name string
}

// silent is the subscription of a store that polls.
type silent struct{}

func (silent) Close() {}

// Subscribe has notify called with every notice for a waiter, see [driver.Store].
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	if s.listener == nil {
		return silent{}, nil
	}
	// The rows of all names are changed together. A name that the database's encoding lacks would prevent that.
	if strings.ContainsFunc(h.Name, func(r rune) bool { return r > unicode.MaxASCII }) {
		if err := s.query(ctx, "SELECT $1::text", []any{h.Name}, nil); untranslatable(err) {
			return nil, err
		}
	}
	b := &subscription{machine.Subscriber{Topics: machine.Topics(h), Notify: notify, Store: s}, s.listener, h.Name}
	if err := s.listener.add(ctx, b); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the subscription.
func (b *subscription) Close() {
	l := b.l
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.names[b.name]
	if all.Remove(&b.Subscriber); len(all) == 0 {
		delete(l.names, b.name)
	}
	l.touch(b.name)
}

// add adds a subscription, and returns when the server has it.
func (l *listener) add(ctx context.Context, b *subscription) error {
	l.mu.Lock()
	if l.s.ending.Err() != nil {
		l.mu.Unlock()
		return errClosed
	}
	if l.names[b.name] == nil {
		l.names[b.name] = make(machine.Subscribers)
	}
	l.names[b.name].Add(&b.Subscriber)
	l.touch(b.name)
	if !l.running {
		l.running = true
		l.s.work.Go(l.run)
	}
	for !l.has(b) {
		if err := l.failed; lasting(err) {
			l.mu.Unlock()
			return err
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return notDone(fmt.Errorf("pgstore: subscribe: %w: %w", driver.ErrUnavailable, errors.Join(ctx.Err(), l.failed)))
		case <-l.s.ending.Done():
			return errClosed
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
	return nil
}

// has reports whether the server has the rows of a subscription. The caller holds mu.
func (l *listener) has(b *subscription) bool {
	for _, t := range b.Topics {
		if !l.rows[b.name][t] {
			return false
		}
	}
	return true
}

// waits reports whether there is a subscription for a name.
func (l *listener) waits(name string) bool {
	if l == nil { // the store polls
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names[name]) > 0
}

// touch has the rows of a name brought up to date. Without a subscription and a row it has none. The caller
// holds mu.
func (l *listener) touch(name string) {
	if len(l.names[name]) == 0 && len(l.rows[name]) == 0 {
		delete(l.changes, name)
		return
	}
	l.changes[name] = true
	select {
	case l.touched <- struct{}{}:
	default:
	}
}

// change has those look again who wait for rows. The caller holds mu.
func (l *listener) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.names)
}

// run makes one connection after another.
func (l *listener) run() {
	for failures := 0; l.s.ending.Err() == nil; failures++ {
		begin := time.Now()
		if err := protect(l.listen); err != nil && l.s.ending.Err() == nil {
			l.fail("pgstore: the connection for notifications failed", err)
		}
		if time.Since(begin) > connectTimeout {
			failures = 0
		}
		if failures > 0 {
			backoff.Sleep(l.s.ending, backoff.Pause(failures, firstReconnect, mostReconnect))
		}
	}
}

// fail reports a failure to the log, and to those who wait for rows.
func (l *listener) fail(what string, err error) {
	l.s.config.Logger.Warn(what, "error", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	l.change()
}

// lasting reports whether a failure lasts until the configuration or the server is changed.
func lasting(err error) bool {
	return errors.Is(err, errListen) || errors.Is(err, driver.ErrNotDone) && !errors.Is(err, driver.ErrUnavailable)
}

// listen makes a connection and delivers its messages until it fails.
func (l *listener) listen() error {
	ctx, end := context.WithCancelCause(l.s.ending)
	defer end(nil)
	number := rand.Int64N(1<<63-1) + 1
	conn, err := l.connect(ctx, number)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if l.s.ending.Err() != nil {
			conn.Exec(ctx, l.s.sql.leave, number) //nolint:errcheck // a sweep removes the rows
		}
		conn.Close(ctx)
	}()
	var registering sync.WaitGroup
	defer registering.Wait()
	defer end(nil)
	again := l.begin(true)
	defer l.begin(false)
	registering.Go(func() { end(protect(func() error { return l.register(ctx, number, again) })) })
	if former := l.number; former != 0 {
		l.s.work.Go(func() { l.leave(former) }) // also if this connection fails meanwhile
	}
	l.number = number
	for {
		wait, done := context.WithTimeout(ctx, l.every)
		n, err := conn.WaitForNotification(wait)
		done()
		switch {
		case err == nil:
			l.deliver(n.Payload)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			probe, done := context.WithTimeout(ctx, connectTimeout)
			err := conn.Ping(probe)
			if done(); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// leave removes the rows of a connection that has failed. If it fails, a sweep removes them. Where
// connections fail again and again, requests would have to look at more dead ones than the server has room for.
func (l *listener) leave(number int64) {
	ctx, cancel := context.WithTimeout(l.s.ending, connectTimeout)
	defer cancel()
	protect(func() error { return l.s.query(ctx, l.s.sql.leave, []any{number}, nil) }) //nolint:errcheck // see above
}

// connect makes a connection. Each host of the configuration has connectTimeout, and no more: one that
// hangs, as the former primary, must not take the time of the others.
func (l *listener) connect(ctx context.Context, number int64) (*pgx.Conn, error) {
	config, err := l.configure(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	made := false
	defer func() {
		if !made { // also after a panic
			conn.Close(ctx)
		}
	}()
	// The lock comes last: where a proxy shares sessions, one would be left in each.
	if err = l.listens(ctx, conn, number); err == nil {
		_, err = conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_lock(%d)", number))
	}
	if err == nil {
		err = l.lives(ctx, conn, number)
	}
	if made = err == nil; !made {
		return nil, err
	}
	return conn, nil
}

// configure returns how to connect.
func (l *listener) configure(ctx context.Context) (config *pgx.ConnConfig, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if config = l.s.config.Listen; config == nil {
		if config, err = l.s.pool.config(ctx); err != nil {
			return nil, err
		}
	}
	config = config.Copy()
	if before := l.s.config.BeforeListen; before != nil {
		if err = before(ctx, config); err != nil {
			return nil, fmt.Errorf("pgstore: Config.BeforeListen: %w", err)
		}
	}
	config.OnNotification = nil                      // of a user, or of the connection whose configuration this is
	config.RuntimeParams["client_encoding"] = "UTF8" // of messages
	config.ConnectTimeout = min(cmp.Or(config.ConnectTimeout, connectTimeout), connectTimeout)
	if after := config.AfterConnect; after != nil {
		config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return after(ctx, conn)
		}
	}
	return config, nil
}

var (
	// errListen is matched by errors that last until the configuration changes.
	errListen = errors.New("set Config.Listen to a direct connection to the pool's database, or Config.Poll")
	// errShared reports a connection that has no session of its own.
	errShared = fmt.Errorf("pgstore: notifications do not pass the proxy before the server, such as PgBouncer in transaction mode: %w", errListen)
	// errElsewhere reports a connection on which no message of the pool's requests would arrive.
	errElsewhere = fmt.Errorf("pgstore: the connection for notifications leads to another database than the pool: %w", errListen)
)

// errUnseen reports that requests do not see the lock or the rows of a connection any more: the pool leads to
// another server since, the connection has failed, or the rows were removed by hand, as with their schema.
var errUnseen = errors.New("pgstore: the pool's server does not know the connection for notifications, or has lost its subscriptions")

// lives checks that requests see the lock of a connection, and take the store for alive.
func (l *listener) lives(ctx context.Context, conn *pgx.Conn, number int64) error {
	var free bool
	err := l.s.query(ctx, "SELECT pg_try_advisory_xact_lock_shared($1::bigint)", []any{number}, func(rows pgx.Rows) error { return rows.Scan(&free) })
	if err != nil || !free {
		return err
	}
	return cmp.Or(conn.Ping(ctx), errElsewhere) // the lock ends with the connection
}

// listens has a connection listen, idle for any time. If there is a proxy, whose clients have process
// numbers that are not those of sessions, it awaits a notification.
func (l *listener) listens(ctx context.Context, conn *pgx.Conn, number int64) error {
	answers, err := conn.PgConn().Exec(ctx, fmt.Sprintf(`LISTEN leasewheel_%d; SELECT pg_backend_pid();
		SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'`, number)).ReadAll() // from version 14 on
	if err != nil || string(answers[1].Rows[0][0]) == fmt.Sprint(conn.PgConn().PID()) {
		return err
	}
	if err = l.probe(ctx, conn, number); errors.Is(err, context.DeadlineExceeded) {
		return errShared
	}
	return err
}

// probe sends a notification, and awaits it.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn, number int64) error {
	if err := l.s.query(ctx, "SELECT pg_notify($1, 'check')", []any{fmt.Sprint("leasewheel_", number)}, nil); err != nil {
		return fmt.Errorf("no notification was sent: %v", err) //nolint:errorlint // a deadline of this is not the notification's
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	return err
}

// begin begins a connection, which has no rows yet, or ends it. It reports whether there was another
// one: messages may have been missed.
func (l *listener) begin(connected bool) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again, l.rows = l.rows != nil, make(map[string]map[machine.Topic]bool)
	if connected {
		l.failed = nil
		for name := range l.names {
			l.touch(name)
		}
	}
	return again
}

// register brings the rows of waits up to date until ctx ends, or until it is not known which rows
// the server will have: a statement that arrives late would remove those of subscriptions that were
// made since. Those of another connection's number it leaves.
func (l *listener) register(ctx context.Context, number int64, again bool) error {
	probes := time.NewTicker(l.every)
	defer probes.Stop()
	for failures := 0; ; {
		var err error
		if failures == 0 && !again {
			select {
			case <-l.touched:
				err = l.update(ctx, number, false)
			case <-probes.C:
				err = l.check(ctx, number)
			case <-ctx.Done():
				return ctx.Err()
			}
		} else {
			err = l.update(ctx, number, again)
		}
		if err == nil {
			failures, again = 0, false
			continue
		}
		if ctx.Err() != nil || !errors.Is(err, driver.ErrNotDone) {
			return err
		}
		l.fail("pgstore: a subscription failed", err)
		failures++
		if !backoff.Sleep(ctx, backoff.Pause(failures, firstReconnect, mostReconnect)) {
			return ctx.Err()
		}
	}
}

// check checks that the server has the lock of a connection, and the rows that were made.
func (l *listener) check(ctx context.Context, number int64) error {
	l.mu.Lock()
	least := 0
	for _, topics := range l.rows {
		for _, has := range topics {
			if has {
				least++
			}
		}
	}
	l.mu.Unlock()
	return l.send(ctx, l.s.sql.knows, number, least)
}

// update makes and removes the rows that are to be changed. After a gap it notifies all.
func (l *listener) update(ctx context.Context, number int64, gap bool) error {
	l.mu.Lock()
	changes := l.changes
	l.changes = make(map[string]bool)
	var more, fewer places
	for name := range changes {
		rows := l.rows[name]
		if rows == nil && len(l.names[name]) > 0 {
			rows = make(map[machine.Topic]bool)
			l.rows[name] = rows
		}
		for t := range l.names[name] {
			if !rows[t] {
				rows[t] = false // should its subscription end now, the row is removed
				more.add(place{name, t})
			}
		}
		for t := range rows {
			if l.names[name][t] == nil {
				rows[t] = false // a subscription that begins now needs a row of its own
				fewer.add(place{name, t})
			}
		}
	}
	l.mu.Unlock()
	var err error
	if len(more.all) > 0 {
		err = l.send(ctx, l.s.sql.wait, more.names, more.kinds, more.ofs, number)
	}
	if err == nil && len(fewer.all) > 0 {
		err = l.send(ctx, l.s.sql.unwait, fewer.names, fewer.kinds, fewer.ofs, number)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		for name := range changes {
			l.touch(name)
		}
		return err
	}
	for _, at := range more.all {
		if rows := l.rows[at.name]; rows != nil { // otherwise the connection has ended
			rows[at.Topic] = true
		}
	}
	for _, at := range fewer.all {
		if delete(l.rows[at.name], at.Topic); len(l.rows[at.name]) == 0 {
			delete(l.rows, at.name)
		}
	}
	l.failed = nil
	l.change()
	if gap {
		for _, all := range l.names {
			all.DeliverAll(driver.Notice{})
		}
	}
	return nil
}

// places are rows of waits in columns.
type places struct {
	all   []place
	names []string
	kinds []int16
	ofs   []string
}

func (p *places) add(at place) {
	p.all, p.names, p.kinds, p.ofs = append(p.all, at), append(p.names, at.name), append(p.kinds, int16(at.Kind)), append(p.ofs, at.Of)
}

// send sends a statement whose row, if any, shows that the server does not know the connection.
func (l *listener) send(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	unseen := false
	err := l.s.query(ctx, sql, args, func(rows pgx.Rows) error { return rows.Scan(&unseen) })
	if err == nil && unseen {
		return errUnseen
	}
	return err
}

// deliver delivers a message.
func (l *listener) deliver(text string) {
	name, m, err := decode(text)
	if err != nil {
		l.s.config.Logger.Warn("pgstore: a notification is not of leasewheel", "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[name].Deliver(m)
}
