//go:build linux

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The orders of the test to a worker process, a line each.
const (
	orderGiveUp = "give up" // stop waiting for permits and latches
	orderFinish = "finish"  // begin nothing new, and end when all waiters were granted
	orderProbe  = "probe"   // acquire every lock once more
	orderClose  = "close"   // close everything, report leftovers, and end
)

// work is the main function of a worker process.
func work() int {
	redis.SetLogger(&logging.VoidLogger{})
	said := make(chan string)
	stdin := bufio.NewReader(os.Stdin)
	w := &worker{report: writeTo(os.Stdout)}
	first, err := stdin.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &w.plan)
	}
	if err == nil {
		err = w.open(w.openStores)
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

// openStores opens a store on each of the plan's servers.
func (w *worker) openStores() (stores []*redisstore.Store, err error) {
	for _, url := range w.plan.URLs {
		s, err := w.openStore(url)
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
		w.close = append(w.close, s.Close)
	}
	return stores, nil
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
	w.begin(&drivers, &background)
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
