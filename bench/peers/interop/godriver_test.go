//go:build real

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	lockdriver "github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// driverVariable makes this test's program a driver of leasewheel, redsync and redislock.
const driverVariable = "INTEROP_DRIVER"

// serve handles requests as redisson/Driver.java does.
func serve(in io.Reader, out io.Writer) {
	g := &goDriver{clients: make(map[string]*goClient), threads: make(map[string]chan func())}
	var mu sync.Mutex // of out
	answer := func(id string, result any, err error) {
		how, text := "ok", fmt.Sprint(result)
		if err != nil {
			how, text = "err", err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, id, how, url.QueryEscape(text))
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		for i := range words {
			words[i], _ = url.QueryUnescape(words[i])
		}
		id, verb, args := words[0], words[2], words[3:]
		if verb == "stop" {
			g.stop(args)
			answer(id, "", nil)
			continue
		}
		g.thread(words[1]) <- func() {
			result, err := g.run(words[1], verb, args)
			answer(id, result, err)
		}
	}
}

// goDriver is the state of a driver.
type goDriver struct {
	mu      sync.Mutex
	clients map[string]*goClient
	threads map[string]chan func()

	stopped      atomic.Bool
	stoppedKinds sync.Map // by kind of lock
}

// stop ends all work, or that of some kinds of lock.
func (g *goDriver) stop(kinds []string) {
	if len(kinds) == 0 {
		g.stopped.Store(true)
	}
	for _, kind := range kinds {
		g.stoppedKinds.Store(kind, true)
	}
}

// works reports whether work of a kind goes on.
func (g *goDriver) works(kind string) bool {
	_, stopped := g.stoppedKinds.Load(kind)
	return !stopped && !g.stopped.Load()
}

// thread returns the named thread's queue of work.
func (g *goDriver) thread(name string) chan<- func() {
	if g.threads[name] == nil {
		work := make(chan func(), 100)
		g.threads[name] = work
		go func() {
			for f := range work {
				f()
			}
		}()
	}
	return g.threads[name]
}

// goClient is one client: a locker of leasewheel, or the clients of the other libraries.
type goClient struct {
	redis  redis.UniversalClient
	store  *redisstore.Store
	locker *lock.Locker

	mu   sync.Mutex
	held map[string][]*goLease // by thread, kind and name, or by a permit's id
}

// goLease is a lock that is held.
type goLease struct {
	context context.Context
	unlock  func(context.Context) error
	extend  func(context.Context, time.Duration) error
}

func milliseconds(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Millisecond
}

func (g *goDriver) run(thread, verb string, args []string) (any, error) {
	if verb == "open" {
		c, err := openGo(args[1], args[2:])
		if err == nil {
			g.mu.Lock()
			g.clients[args[0]] = c
			g.mu.Unlock()
		}
		return "", err
	}
	g.mu.Lock()
	c := g.clients[args[0]]
	g.mu.Unlock()
	switch ctx := context.Background(); verb {
	case "close":
		return "", errors.Join(c.locker.Close(), c.store.Close(), c.redis.Close())
	case "lock":
		return c.lock(ctx, thread, args[1], args[2], milliseconds(args[3]), milliseconds(args[4]))
	case "unlock":
		return "", c.unlock(ctx, thread+" "+args[1]+" "+args[2])
	case "extend":
		return "", c.extend(ctx, thread, args[1], milliseconds(args[2]))
	case "force":
		info, err := c.locker.ForceRelease(ctx, args[2])
		return flag01(info.Held()), err
	case "locked":
		info, err := c.locker.Inspect(ctx, args[2], lockdriver.KindMutex)
		return flag01(info.Held()), err
	case "inspect":
		return c.inspect(ctx, args[1])
	case "work":
		return c.work(ctx, g.works, args[1:])
	default:
		return c.count(ctx, verb, args[1:])
	}
}

func flag01(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// openGo opens a client: url key=value….
func openGo(address string, options []string) (*goClient, error) {
	scheme, nodes, _ := strings.Cut(address, "://")
	addresses := strings.Split(nodes, ",")
	target := "redis://" + addresses[0]
	switch scheme {
	case "cluster":
		target = "redis-cluster://" + addresses[0]
	case "sentinel":
		target = "redis-sentinel://" + addresses[0] + "?master_name=leasewheel"
	}
	// On a machine that is busy with JVMs a process may stand still for seconds.
	client, err := redisstore.Dial(target+map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")]+"dial_timeout=90s&read_timeout=60s", redisstore.ClientConfig{})
	if err != nil {
		return nil, err
	}
	locking := lock.Config{Poll: 25 * time.Second, TTL: 30 * time.Second, RequestTimeout: 10 * time.Second, RetryFor: time.Minute}
	var storing redisstore.Config
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		if err := configure(&locking, &storing, key, value); err != nil {
			return nil, err
		}
	}
	c := &goClient{redis: client, held: make(map[string][]*goLease)}
	if c.store, err = redisstore.New(client, storing); err != nil {
		return nil, err
	}
	c.locker, err = lock.New(c.store, locking)
	return c, err
}

func configure(locking *lock.Config, storing *redisstore.Config, key, value string) error {
	switch key {
	case "watchdog":
		locking.TTL = milliseconds(value)
	case "poll":
		locking.Poll = milliseconds(value)
	case "fairwait":
		storing.FairLockWaitTimeout = milliseconds(value)
	case "fence":
		storing.FenceTTL = milliseconds(value)
	case "format":
		format, err := redisstore.ParseFormat(value)
		storing.Format = format
		return err
	case "prefix":
		storing.Prefix = value
	case "pubsub":
		mode, err := redisstore.ParsePubSub(value)
		storing.PubSub = mode
		return err
	default:
		return fmt.Errorf("no option %q", key)
	}
	return nil
}

// mutex returns the handle of a lock of leasewheel.
func (c *goClient) mutex(kind, name string, lease time.Duration) (*lock.Mutex, error) {
	var m *lock.Mutex
	switch kind {
	case "mutex", "fenced", "spin", "nonreentrant", "plain":
		m = c.locker.Mutex(name)
	case "fair":
		m = c.locker.Fair(name)
	case "read":
		m = c.locker.ReadWrite(name).Read()
	case "write":
		m = c.locker.ReadWrite(name).Write()
	default:
		return nil, fmt.Errorf("no kind %q", kind)
	}
	if lease > 0 {
		m = m.With(lock.Options{TTL: lease, Fixed: true})
	}
	return m, nil
}

// acquire acquires a lock within wait; a negative one has no limit. It returns nil if the lock
// was not granted.
func (c *goClient) acquire(ctx context.Context, kind, name string, wait, lease time.Duration) (*goLease, int64, error) {
	switch kind {
	case "redsync":
		return c.redsync(ctx, name, wait, lease)
	case "redislock":
		return c.redislock(ctx, name, wait, lease)
	case "multi":
		return c.multi(ctx, name, wait, lease)
	}
	m, err := c.mutex(kind, name, lease)
	if err != nil {
		return nil, 0, err
	}
	var l *lock.Lease
	if wait < 0 {
		l, err = m.Lock(ctx)
	} else {
		l, err = m.MaxWait(wait).Lock(ctx)
	}
	if errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrForeign) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return &goLease{context: l.Context(), unlock: l.Unlock}, l.Token(), nil
}

// multi acquires several mutexes, whose names are separated by commas.
func (c *goClient) multi(ctx context.Context, names string, wait, lease time.Duration) (*goLease, int64, error) {
	var members []*lock.Mutex
	for name := range strings.SplitSeq(names, ",") {
		m, err := c.mutex("mutex", name, lease)
		if err != nil {
			return nil, 0, err
		}
		members = append(members, m)
	}
	var l *lock.Lease
	var err error
	if wait < 0 {
		l, err = lock.All(members...).Lock(ctx)
	} else {
		l, err = lock.All(members...).MaxWait(wait).Lock(ctx)
	}
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return &goLease{context: l.Context(), unlock: l.Unlock}, 1, nil
}

// redsync tries as often as the library does, until wait is over.
func (c *goClient) redsync(ctx context.Context, name string, wait, lease time.Duration) (*goLease, int64, error) {
	locks := redsync.New(goredis.NewPool(c.redis))
	for begun := time.Now(); ; {
		options := []redsync.Option{redsync.WithExpiry(lease)}
		if wait == 0 {
			options = append(options, redsync.WithTries(1))
		}
		m := locks.NewMutex(name, options...)
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return &goLease{context: ctx, unlock: func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, extend: func(ctx context.Context, _ time.Duration) error {
				_, err := m.ExtendContext(ctx)
				return err
			}}, 1, nil
		case !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed):
			return nil, 0, err
		case wait >= 0 && time.Since(begun) >= wait:
			return nil, 0, nil
		}
	}
}

func (c *goClient) redislock(ctx context.Context, name string, wait, lease time.Duration) (*goLease, int64, error) {
	if wait < 0 {
		wait = time.Hour
	}
	options := &redislock.Options{Metadata: "somebody's job"}
	if wait > 0 {
		options.RetryStrategy = redislock.LinearBackoff(100 * time.Millisecond)
	}
	waiting, cancel := context.WithTimeout(ctx, max(wait, 5*time.Second))
	defer cancel()
	l, err := redislock.New(c.redis).Obtain(waiting, name, lease, options)
	switch {
	case errors.Is(err, redislock.ErrNotObtained), errors.Is(err, context.DeadlineExceeded):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return &goLease{context: ctx, unlock: l.Release, extend: func(ctx context.Context, ttl time.Duration) error {
		return l.Refresh(ctx, ttl, nil)
	}}, 1, nil
}

// lock acquires a lock for a thread, which owns its earlier locks. The result is the token,
// or 0.
func (c *goClient) lock(ctx context.Context, thread, kind, name string, wait, lease time.Duration) (any, error) {
	c.mu.Lock()
	var last []*goLease
	for _, side := range []string{"write", kind} { // a writer may read
		if held := c.held[thread+" "+side+" "+name]; len(held) > 0 {
			last = held
		}
	}
	c.mu.Unlock()
	if len(last) > 0 {
		ctx = last[len(last)-1].context
	}
	l, token, err := c.acquire(ctx, kind, name, wait, lease)
	if err != nil || l == nil {
		return "0", err
	}
	c.keep(thread+" "+kind+" "+name, l)
	return max(token, 1), nil
}

func (c *goClient) keep(key string, l *goLease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[key] = append(c.held[key], l)
}

// take returns the last lease that keep has stored.
func (c *goClient) take(key string) (*goLease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[key]
	if len(held) == 0 {
		return nil, fmt.Errorf("%s is not held", key)
	}
	c.held[key] = held[:len(held)-1]
	return held[len(held)-1], nil
}

func (c *goClient) unlock(ctx context.Context, key string) error {
	l, err := c.take(key)
	if err != nil {
		return err
	}
	return l.unlock(ctx)
}

func (c *goClient) extend(ctx context.Context, thread, name string, lease time.Duration) error {
	for _, kind := range []string{"redsync", "redislock"} {
		if l, err := c.take(thread + " " + kind + " " + name); err == nil {
			c.keep(thread+" "+kind+" "+name, l)
			return l.extend(ctx, lease)
		}
	}
	return fmt.Errorf("%s is not held", name)
}

// inspect describes a lock in one line: its kind, or "foreign" with the key's type, then the
// holds of each owner.
func (c *goClient) inspect(ctx context.Context, name string) (any, error) {
	info, err := c.locker.Inspect(ctx, name, lockdriver.KindMutex)
	if err != nil {
		return "", err
	}
	words := []string{info.Kind.String()}
	if info.Foreign != "" {
		words = []string{"foreign", info.Foreign}
	}
	for _, h := range info.Holders {
		words = append(words, fmt.Sprintf("%s=%d", h.Owner, h.Holds))
	}
	return strings.Join(words, " "), nil
}

// work acquires and releases a lock until it is stopped; see the driver of Redisson.
func (c *goClient) work(ctx context.Context, works func(kind string) bool, a []string) (any, error) {
	kind, name, how, hold, pause := a[0], a[1], a[2], milliseconds(a[3]), milliseconds(a[4])
	resource, worker, capacity, enter, leave := []string{a[5]}, a[6], a[7], a[8], a[9]
	use, lease := "x", time.Duration(-1)
	switch kind {
	case "read", "permits":
		use = "s"
	case "redsync", "redislock":
		lease = 10 * time.Second
	}
	turns := 0
	for works(kind) {
		wait := time.Second
		if how == "poll" {
			wait = 0
		}
		var l *goLease
		var err error
		if kind == "permits" {
			l, err = c.permit(ctx, c.locker.Permits(name).One(), wait, -1)
		} else {
			l, _, err = c.acquire(ctx, kind, name, wait, lease)
		}
		if err != nil {
			return "", err
		}
		if l == nil {
			continue
		}
		if err := c.redis.Eval(ctx, enter, resource, use, capacity, worker).Err(); err != nil {
			return "", err
		}
		turns++
		time.Sleep(hold)
		if err := c.redis.Eval(ctx, leave, resource, use, capacity, worker).Err(); err != nil {
			return "", err
		}
		if err := l.unlock(ctx); err != nil {
			return "", err
		}
		time.Sleep(pause)
	}
	return turns, nil
}

func (c *goClient) permit(ctx context.Context, p *lock.Mutex, wait, lease time.Duration) (*goLease, error) {
	if lease > 0 {
		p = p.With(lock.Options{TTL: lease, Fixed: true})
	}
	var l *lock.Lease
	var err error
	if wait < 0 {
		l, err = p.Lock(ctx)
	} else {
		l, err = p.MaxWait(wait).Lock(ctx)
	}
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil, nil //nolint:nilnil // no permit is no error here
	}
	if err != nil {
		return nil, err
	}
	c.keep(l.Owner(), &goLease{unlock: l.Unlock})
	return &goLease{context: context.WithValue(ctx, permitID{}, l.Owner()), unlock: l.Unlock}, nil
}

type permitID struct{}

// count handles requests for semaphores, expiring permits and latches.
func (c *goClient) count(ctx context.Context, verb string, a []string) (any, error) {
	s, p, latch := c.locker.Semaphore(a[0]), c.locker.Permits(a[0]), c.locker.Latch(a[0])
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(a[i], 10, 64)
		return n
	}
	done := func(b bool, err error) (any, error) { return flag01(b), err }
	acquired := func(err error) (any, error) {
		if errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
			return "0", nil
		}
		return "1", err
	}
	switch verb {
	case "semaphore.set":
		return done(s.TrySetPermits(ctx, number(1)))
	case "semaphore.acquire":
		if number(2) < 0 {
			return acquired(s.Acquire(ctx, number(1)))
		}
		return acquired(s.MaxWait(milliseconds(a[2])).Acquire(ctx, number(1)))
	case "semaphore.release":
		return "", s.Release(ctx, number(1))
	case "semaphore.add":
		return "", s.AddPermits(ctx, number(1))
	case "semaphore.drain":
		return s.Drain(ctx)
	case "semaphore.available":
		return s.Available(ctx)
	case "permits.set":
		return done(p.TrySetPermits(ctx, number(1)))
	case "permits.acquire":
		l, err := c.permit(ctx, p.One(), milliseconds(a[1]), milliseconds(a[2]))
		if err != nil || l == nil {
			return "0", err
		}
		return l.context.Value(permitID{}), nil
	case "permits.acquiremany":
		l, err := c.permit(ctx, p.Several(number(1)), milliseconds(a[2]), milliseconds(a[3]))
		if err != nil || l == nil {
			return "", err
		}
		return l.context.Value(permitID{}), nil
	case "permits.add":
		return "", p.AddPermits(ctx, number(1))
	case "permits.reset":
		return "", p.SetPermits(ctx, number(1))
	case "permits.release", "permits.releasemany":
		return "", c.unlock(ctx, a[1])
	case "permits.available":
		return p.Available(ctx)
	case "latch.set":
		return done(latch.TrySetCount(ctx, number(1)))
	case "latch.down":
		return "", latch.CountDown(ctx)
	case "latch.count":
		return latch.Count(ctx)
	case "latch.delete":
		return done(latch.Delete(ctx))
	case "latch.await":
		if number(1) >= 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, milliseconds(a[1]))
			defer cancel()
		}
		return acquired(latch.Wait(ctx))
	}
	return "", fmt.Errorf("no verb %q", verb)
}
