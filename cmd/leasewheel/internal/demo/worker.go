//go:build unix

package demo

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// workerCommand is the hidden subcommand under which the demo starts itself.
const workerCommand = "demo-worker"

// workerJob is the first line of a worker's standard input, where no other user can read
// the server's password.
type workerJob struct {
	Redis string `json:"redis"`
	connect.ConnectionFlags
	Lock    string        `json:"lock"`
	Counter string        `json:"counter"`
	TTL     time.Duration `json:"ttl"`
}

// open connects to the job's server. The demo's keys expire there soon.
func (j *workerJob) open() (*connect.Server, error) {
	flags := connect.Flags{URLs: []string{j.Redis}, ConnectionFlags: j.ConnectionFlags}
	server, err := flags.Open("", redisstore.Config{FenceTTL: time.Minute})
	j.ConnectionFlags = flags.ConnectionFlags // for workers, with the password of a pipe
	return server, err
}

// The orders to a worker, a line each, on its standard input. The end of the input is an
// order to stop.
const (
	orderHold  = "hold"  // keep the lock at the next acquisition
	orderWrite = "write" // write now, without checking the lease
	orderStop  = "stop"
)

// The kinds of workerEvent.
const (
	eventHeld    = "held"    // had the lock from From to Until and added one to the counter
	eventHolding = "holding" // has the lock as ordered
	eventLost    = "lost"    // the loss was reported at At, for Cause; was Awake again then, if frozen
	eventStale   = "stale"   // wrote as ordered, at At, with an old token
	eventWaited  = "waited"  // waited for the lock from Asked to Until, in vain
)

// workerEvent is a line of a worker's standard output.
type workerEvent struct {
	Kind     string            `json:"kind"`
	Token    int64             `json:"token,omitempty"`
	Asked    hostclock.Instant `json:"asked,omitempty"` // when the process began to wait for the lock
	From     hostclock.Instant `json:"from,omitempty"`
	Until    hostclock.Instant `json:"until,omitempty"`
	At       hostclock.Instant `json:"at,omitempty"`
	Awake    hostclock.Instant `json:"awake,omitempty"`
	Accepted bool              `json:"accepted,omitempty"`
	Cause    string            `json:"cause,omitempty"`
}

// NewWorkerCommand makes the hidden command of one process of the demo.
func NewWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand,
		Short:  "One process of the demo",
		Hidden: true,
		Args:   exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Ctrl-C reaches the whole demo; our parent ends us.
			signal.Ignore(syscall.SIGINT)
			if err := work(cmd.Context(), os.Stdin, os.Stdout); err != nil {
				return exit.Errorf(exit.Internal, "demo worker: %w", err)
			}
			return nil
		},
	}
}

// worker acquires the lock over and over, and adds one to the counter each time.
type worker struct {
	job    workerJob
	client redis.UniversalClient
	mutex  *lock.Mutex
	clock  hostclock.Clock

	holds  chan struct{} // an order to hold waits here
	writes chan struct{} // an order to write waits here

	printing sync.Mutex // serializes out
	out      *json.Encoder
}

// work runs a worker: a job and orders from in, events to out.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	clock, err := hostclock.New()
	if err != nil {
		return err
	}
	w := &worker{
		clock:  clock,
		holds:  make(chan struct{}, 1),
		writes: make(chan struct{}, 1),
		out:    json.NewEncoder(out),
	}
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.New("no job on standard input; this command is for leasewheel demo")
	}
	if err := json.Unmarshal(lines.Bytes(), &w.job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go w.listen(lines, stop)
	return w.serve(ctx)
}

// listen receives orders until the end of the input.
func (w *worker) listen(lines *bufio.Scanner, stop func()) {
	defer stop()
	for lines.Scan() {
		switch lines.Text() {
		case orderHold:
			w.holds <- struct{}{}
		case orderWrite:
			w.writes <- struct{}{}
		case orderStop:
			return
		}
	}
}

// serve works until ctx ends.
func (w *worker) serve(ctx context.Context) error {
	server, err := w.job.open()
	if err != nil {
		return err
	}
	defer server.Close()
	w.client = server.Client
	locker, err := lock.New(server.Store, lock.Config{TTL: w.job.TTL})
	if err != nil {
		return err
	}
	defer locker.Close()
	w.mutex = locker.Mutex(w.job.Lock)

	for ctx.Err() == nil {
		asked := w.clock.Now()
		lease, err := w.mutex.Lock(ctx)
		from := w.clock.Now()
		switch {
		case err != nil && ctx.Err() != nil:
			w.report(workerEvent{Kind: eventWaited, Asked: asked, Until: from})
			return nil
		case err != nil:
			return err
		}
		select {
		case <-w.holds:
			err = w.holdOn(ctx, lease, asked, from)
		default:
			err = w.increment(context.WithoutCancel(ctx), lease, asked, from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// increment reads the counter, waits, and writes it: without the lock, or with two
// holders of it, increments would be lost.
func (w *worker) increment(ctx context.Context, lease *lock.Lease, asked, from hostclock.Instant) error {
	value, err := w.read(ctx)
	if err != nil {
		return err
	}
	<-time.After(rand.N(2 * time.Millisecond)) // the time between read and write
	accepted, err := w.write(ctx, lease.Token(), value+1)
	if err != nil {
		return err
	}
	until := min(w.clock.Now(), w.clock.Of(lease.Until()))
	err = lease.Unlock(ctx)
	if lost, ok := errors.AsType[*lock.LostError](err); ok {
		w.report(workerEvent{Kind: eventLost, Token: lease.Token(), At: w.clock.Now(), Cause: lost.Cause.String()})
		err = nil
	}
	w.report(workerEvent{Kind: eventHeld, Token: lease.Token(), Asked: asked, From: from, Until: until, Accepted: accepted})
	return err
}

// holdOn keeps the lock until it is lost. The process is about to be frozen, and will
// write without checking the lease when it continues: a stale holder, as after any pause.
func (w *worker) holdOn(ctx context.Context, lease *lock.Lease, asked, from hostclock.Instant) error {
	var told sync.WaitGroup
	defer told.Wait()
	awake := make(chan hostclock.Instant, 1)
	last := w.clock.Now() // read here: the goroutines may first run after the freeze
	told.Go(func() { awake <- w.awaitThaw(ctx, last) })
	told.Go(func() {
		select {
		case <-lease.Lost():
			at := w.clock.Now()
			lost, _ := errors.AsType[*lock.LostError](lease.Err())
			w.report(workerEvent{Kind: eventLost, Token: lease.Token(), At: at, Awake: <-awake, Cause: lost.Cause.String()})
		case <-ctx.Done():
		}
	})
	w.report(workerEvent{Kind: eventHolding, Token: lease.Token(), Asked: asked, From: from, Until: w.clock.Of(lease.Until())})
	select {
	case <-w.writes:
	case <-ctx.Done():
		return lease.Unlock(ctx)
	}
	value, err := w.read(ctx)
	if err != nil {
		return err
	}
	accepted, err := w.write(ctx, lease.Token(), value+1)
	if err != nil {
		return err
	}
	w.report(workerEvent{Kind: eventStale, Token: lease.Token(), Asked: asked, From: from, Until: w.clock.Of(lease.Until()), At: w.clock.Now(), Accepted: accepted})
	select { // an Unlock that precedes the notice of the loss would take its place
	case <-lease.Lost():
	case <-ctx.Done():
	}
	if err := lease.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("unlocking a lease that was frozen for longer than its TTL: %w", err)
	}
	return nil
}

// awaitThaw returns when the process, which last ran at last, has been frozen and
// continues: the first instant at which a plain timer of the runtime fires again. On an
// overloaded machine that is long after SIGCONT, and no loss can be reported before.
func (w *worker) awaitThaw(ctx context.Context, last hostclock.Instant) hostclock.Instant {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0
		}
		now := w.clock.Now()
		if now.Since(last) > w.job.TTL/2 {
			return now
		}
		last = now
	}
}

func (w *worker) read(ctx context.Context) (int64, error) {
	value, err := w.client.HGet(ctx, w.job.Counter, "value").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return value, err
}

//go:embed write.lua
var writeSource string

var writeScript = redis.NewScript(writeSource)

// write writes the counter unless a newer token than ours has written it.
func (w *worker) write(ctx context.Context, token, value int64) (accepted bool, err error) {
	return writeScript.Run(ctx, w.client, []string{w.job.Counter}, token, value).Bool()
}

// report prints an event. If the output has no reader any more, the input has ended too.
func (w *worker) report(e workerEvent) {
	w.printing.Lock()
	defer w.printing.Unlock()
	if err := w.out.Encode(e); err != nil {
		slog.Debug("demo worker: event lost", "err", err)
	}
}
