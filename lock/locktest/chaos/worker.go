//go:build linux

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/wheel"
)

// The orders of the test to a worker process, a line each.
const (
	orderGiveUp = "give up" // stop waiting for permits and latches
	orderFinish = "finish"  // begin nothing new, and end when all waiters were granted
	orderProbe  = "probe"   // acquire every lock once more
	orderClose  = "close"   // close everything, report leftovers, and end
)

// worker is a process that uses locks. Everything goes through one store, so that
// requests of all kinds share its pipelines.
type worker struct {
	plan workerPlan
	reporter
	ops atomic.Int64

	wheel  *wheel.Wheel      // nil if the locker has its own
	store  *redisstore.Store // nil for a quorum
	locker *lock.Locker
	queue  *delayqueue.Queue
	close  []func() error

	finishing context.Context // done: begin nothing new
	giveUp    context.Context // done: stop waiting for what may never be released
}

// work is the main function of a worker process.
func work() int {
	redis.SetLogger(&logging.VoidLogger{})
	said := make(chan string)
	stdin := bufio.NewReader(os.Stdin)
	w := &worker{reporter: reporter{out: os.Stdout}}
	first, err := stdin.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &w.plan)
	}
	if err == nil {
		err = w.open()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker:", err)
		return 1
	}
	go func() {
		for {
			line, err := stdin.ReadString('\n')
			if err != nil {
				os.Exit(0) // the test is gone
			}
			said <- line[:len(line)-1]
		}
	}()
	w.run(said)
	return 0
}

func (w *worker) open() (err error) {
	var c lock.Config
	c.RequestTimeout, c.Poll = w.plan.Request, w.plan.Poll
	qc := delayqueue.Config{Poll: time.Second}
	c.MaxRunning = w.plan.Running
	if w.plan.Tick > 0 || w.plan.Pool > 0 {
		ticks, err := w.openWheel()
		if err != nil {
			return err
		}
		c.Wheel, qc.Wheel = ticks, ticks
	}
	var stores []lock.Store
	for _, url := range w.plan.URLs {
		s, err := w.openStore(url)
		if err != nil {
			return err
		}
		w.store = s
		stores = append(stores, s)
		w.close = append(w.close, s.Close)
	}
	store := stores[0]
	if len(stores) > 1 {
		q, err := quorum.New(stores, quorum.Config{NodeTimeout: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		store, w.store = q, nil
		w.close = append(w.close, q.Close)
	}
	if w.locker, err = lock.New(store, c); err != nil {
		return err
	}
	w.close = append(w.close, func() error { return w.locker.Close(context.Background()) })
	if w.plan.Queue != nil {
		if w.queue, err = delayqueue.New(w.store, w.plan.Queue.Name, qc); err != nil {
			return err
		}
		w.close = append(w.close, func() error { return w.queue.Close(context.Background()) })
	}
	return nil
}

// openWheel makes the wheel that the process shares with its locks and its queue. If it has
// an executor, tasks of the process occupy that one.
func (w *worker) openWheel() (*wheel.Wheel, error) {
	c := wheel.Config{Tick: w.plan.Tick, Logger: slog.New(slog.DiscardHandler)}
	if w.plan.Pool > 0 {
		pool := wheel.NewPool(w.plan.Pool, w.plan.Room)
		c.Executor = pool
		w.close = append(w.close, func() error { pool.Close(); return nil })
	}
	ticks, err := wheel.New(c)
	if err != nil {
		return nil, err
	}
	w.wheel = ticks
	w.close = append(w.close, func() error { ticks.Stop(); return nil })
	return ticks, nil
}

// occupyPool fills the executor of the wheel for a while, again and again.
func (w *worker) occupyPool() {
	d := newDice(w.plan.Seed, 1<<32)
	for w.sleep(d.span(20*time.Millisecond, time.Second)) {
		long := d.span(10*time.Millisecond, 500*time.Millisecond)
		for range w.plan.Pool + w.plan.Room {
			_, _ = w.wheel.Schedule(0, func() { time.Sleep(long) })
		}
	}
}

// openStore opens a store. That of a cluster reaches the nodes through the proxies of this
// process's place.
func (w *worker) openStore(url string) (*redisstore.Store, error) {
	if w.plan.Wires == nil {
		return redisstore.Open(url, w.plan.Mapping.config())
	}
	o, err := redis.ParseClusterURL(strings.Replace(url, "redis-cluster://", "redis://", 1))
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var dialer net.Dialer
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, cmp.Or(w.plan.Wires[address], address))
	}
	client := redis.NewClusterClient(o)
	w.close = append(w.close, client.Close)
	return redisstore.New(client, w.plan.Mapping.config())
}

func (w *worker) run(said <-chan string) {
	var finish, giveUp context.CancelFunc
	w.finishing, finish = context.WithCancel(context.Background())
	defer finish()
	w.giveUp, giveUp = context.WithCancel(context.Background())
	defer giveUp()
	w.report(event{What: evReady, Owner: w.locker.ClientID()})

	var drivers, background sync.WaitGroup
	for _, p := range w.plan.Drivers {
		drivers.Go(func() { w.drive(p) })
	}
	if w.queue != nil {
		for putter := range w.plan.Queue.Putters {
			drivers.Go(func() { w.putMessages(putter) })
		}
		background.Go(w.handleMessages)
	}
	if w.plan.Pool > 0 {
		drivers.Go(w.occupyPool)
	}
	measuring, stop := context.WithCancel(context.Background())
	defer stop()
	background.Go(func() { w.measureLag(measuring.Done()) })
	background.Go(func() { w.measureRoundTrips(measuring) })
	for order := range said {
		switch order {
		case orderGiveUp:
			giveUp()
		case orderFinish:
			finish()
			go func() {
				drivers.Wait()
				w.report(event{What: evFinished})
			}()
		case orderProbe:
			go func() {
				w.probe()
				w.report(event{What: evProbed})
			}()
		case orderClose:
			stop()
			w.closeAll()
			background.Wait()
			w.leave()
			return
		}
	}
}

func (w *worker) closeAll() {
	for i := len(w.close) - 1; i >= 0; i-- {
		if err := w.close[i](); err != nil {
			fmt.Fprintln(os.Stderr, "chaos worker: close:", err)
		}
	}
}

// leave reports leftovers after everything was closed.
func (w *worker) leave() {
	e := event{What: evClosed}
	if err := goleak.Find(
		goleak.IgnoreTopFunction("bufio.(*Reader).fill"),
		goleak.IgnoreAnyFunction("github.com/leasewheel/leasewheel/lock/locktest/chaos.work.func1"),
	); err != nil {
		e.Errors, e.Text = []string{"goroutines"}, err.Error()
	}
	w.wheel, w.store, w.locker, w.queue, w.close = nil, nil, nil, nil, nil
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	e.N = int64(m.HeapAlloc)
	w.report(e)
}

// measureLag reports when this process's timers are late: then it was stopped, or got no
// processor.
func (w *worker) measureLag(stop <-chan struct{}) {
	const every = 5 * time.Millisecond
	timer := time.NewTicker(every)
	defer timer.Stop()
	last := now()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		at := now()
		if late := at.sub(last) - every; late > 10*time.Millisecond {
			w.report(event{What: evLag, At: at, N: int64(late)})
		}
		last = at
	}
}

// sleep returns false if w finishes meanwhile.
func (w *worker) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.finishing.Done():
		return false
	}
}

func (w *worker) drive(p driverPlan) {
	d := newDice(p.Seed, 0)
	for w.finishing.Err() == nil {
		var err error
		switch p.Kind {
		case semaphoreKind:
			err = w.useSemaphore(p, d)
		case latchKind:
			err = w.useLatch(p, d)
		default:
			err = w.useLock(p, d)
		}
		if named, ok := errors.AsType[*lock.NameError](err); ok {
			w.report(event{What: evRefused, Kind: p.Kind, Name: p.Name, Text: named.Reason})
			return
		}
		pause := time.Duration(0)
		switch {
		case err != nil:
			pause = d.span(100*time.Microsecond, 20*time.Millisecond)
		case p.Role == crowd:
			pause = d.between(100*time.Millisecond, 700*time.Millisecond)
		case p.Calm:
			pause = d.span(5*time.Millisecond, 200*time.Millisecond)
		}
		if pause > 0 && !w.sleep(pause) {
			return
		}
	}
}
