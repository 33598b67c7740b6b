package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

const watchLong = `Watch lists the held locks again and again: their holders, since when, the remaining
time of their leases, and how many wait. On a terminal the list is redrawn in place,
those with the most waiters first. Elsewhere each refresh is one
line with the numbers of locks and waiters; with --json, one line with a document of all
locks by name.

PATTERN is that of ls. Each refresh reads the names of all keys of the server: on a
server with millions of them, use a longer --interval.

During an outage of the server, watch says so and goes on; of several servers the others
are still listed. Permanent errors end it: a refused password, a missing right, TLS on
one side alone.

Exit codes:
  0   Ctrl-C or SIGTERM ended it, or --count was reached
  64  the arguments are invalid
  69  the server refused; or, with --count, the last refresh did not reach all
      servers`

const watchExample = `  leasewheel watch
  leasewheel watch --interval 500ms 'orders:*'
  leasewheel watch --json | jq -r '.time + " " + (.locks | map(.waiter_count) | add // 0 | tostring)'`

// minWatchInterval keeps the refreshes from being most of the server's work.
const minWatchInterval = 100 * time.Millisecond

// watchCommand is one execution of `leasewheel watch`.
type watchCommand struct {
	lookup
	interval duration.Flag
	count    int
	out      io.Writer
}

// NewWatchCommand makes leasewheel watch.
func NewWatchCommand() *cobra.Command {
	w := &watchCommand{interval: duration.Flag(2 * time.Second)}
	cmd := &cobra.Command{
		Use:     "watch [flags] [PATTERN]",
		Short:   "Show the held locks as they change",
		Long:    watchLong,
		Example: watchExample,
		RunE:    w.run,

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().VarP(&w.interval, "interval", "i", "time between two refreshes, at least "+minWatchInterval.String())
	cmd.Flags().IntVarP(&w.count, "count", "n", 0, "end after so many refreshes (default: never)")
	w.register(cmd, "print each refresh as a line of JSON")
	cmd.ValidArgsFunction = w.completeNames(1)
	return cmd
}

func (w *watchCommand) run(cmd *cobra.Command, args []string) error {
	pattern, err := connect.Pattern(cmd, args)
	if err != nil {
		return err
	}
	switch {
	case time.Duration(w.interval) < minWatchInterval:
		return exit.UsageError(cmd, fmt.Errorf("--interval %v: accepted are durations from %v up", &w.interval, minWatchInterval))
	case w.count < 0:
		return exit.UsageError(cmd, fmt.Errorf("--count %d: accepted are numbers from 1 up, and 0 for no end", w.count))
	}
	if err := w.open(cmd); err != nil {
		return err
	}
	defer w.close()
	ctx, stop := interrupt.Context(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w.out = cmd.OutOrStdout()
	file, isFile := w.out.(*os.File)
	switch {
	case w.json:
		return w.refreshEach(ctx, cmd, pattern, w.writeDocument)
	case isFile && terminal.Is(file):
		s := newScreen(file, time.Duration(w.interval))
		return cmp.Or(w.refreshEach(ctx, cmd, pattern, s.show), s.end())
	}
	return w.refreshEach(ctx, cmd, pattern, func(r *refresh) error { return r.writeLine(w.out) })
}

// refreshEach shows a refresh after every interval, until the context ends. A server that
// does not answer a request in time has failed this refresh.
func (w *watchCommand) refreshEach(ctx context.Context, cmd *cobra.Command, pattern string, show func(*refresh) error) error {
	for _, v := range w.views {
		v.server.LimitRequests(connect.RequestTimeout)
	}
	ticker := time.NewTicker(time.Duration(w.interval))
	defer ticker.Stop()
	last := make([]viewed, len(w.views))
	for n := 1; ; n++ {
		r := w.refresh(ctx, cmd, pattern, last)
		if ctx.Err() != nil {
			return nil // the refresh may be incomplete
		}
		if r.permanent != nil {
			return r.permanent
		}
		if err := show(r); err != nil {
			return exit.Errorf(exit.Internal, "writing the list: %w", err)
		}
		last = r.views
		if n == w.count {
			return r.failure()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// refresh is what the servers answered at one time.
type refresh struct {
	at    time.Time
	views []viewed
	// permanent is an error that no later refresh would mend.
	permanent error
}

// viewed are the locks of one server.
type viewed struct {
	label string
	locks []driver.Info // by name; those of an earlier refresh after a failure
	at    time.Time     // when they were read; zero if never
	err   error         // why they could not be read now
}

// refresh reads the locks of all servers at once. The servers that fail keep those that
// they had.
func (w *watchCommand) refresh(ctx context.Context, cmd *cobra.Command, pattern string, last []viewed) *refresh {
	r := &refresh{views: make([]viewed, len(w.views))}
	permanent := make([]error, len(w.views))
	var asked sync.WaitGroup
	for i, v := range w.views {
		asked.Go(func() {
			locks, err := v.list(ctx, pattern)
			if err != nil {
				failure := v.failed(cmd, err)
				r.views[i] = last[i]
				r.views[i].label, r.views[i].err = v.label, failure
				if !outage(err, failure) {
					permanent[i] = failure
				}
				return
			}
			r.views[i] = viewed{label: v.label, locks: locks, at: time.Now()}
		})
	}
	asked.Wait()
	r.at, r.permanent = time.Now(), cmp.Or(permanent...)
	return r
}

// list returns the server's locks by name, or the first error.
func (v *view) list(ctx context.Context, pattern string) (locks []driver.Info, err error) {
	for info, err := range v.locker.List(ctx, pattern) {
		if err != nil {
			return nil, err
		}
		locks = append(locks, info)
	}
	slices.SortFunc(locks, func(a, b driver.Info) int { return cmp.Compare(a.Name, b.Name) })
	return locks, nil
}

// outage reports whether a later refresh may succeed after err, reported as failure.
func outage(err, failure error) bool {
	_, mismatched := errors.AsType[*connect.MismatchError](failure)
	return errors.Is(err, lock.ErrUnavailable) && !mismatched && !connect.Untrusted(err)
}

// failure returns the first failure of a server.
func (r *refresh) failure() error {
	for _, v := range r.views {
		if v.err != nil {
			return v.err
		}
	}
	return nil
}

// current returns the locks that were read now, with their servers, by name.
func (r *refresh) current() (rows []watchedLock) {
	for _, v := range r.views {
		if v.err == nil {
			rows = append(rows, v.rows()...)
		}
	}
	slices.SortStableFunc(rows, func(a, b watchedLock) int { return cmp.Compare(a.info.Name, b.info.Name) })
	return rows
}

// watchedLock is a lock and its server, if there are several.
type watchedLock struct {
	server string
	info   *driver.Info
	at     time.Time
}

func (v *viewed) rows() (rows []watchedLock) {
	for i := range v.locks {
		rows = append(rows, watchedLock{v.label, &v.locks[i], v.at})
	}
	return rows
}
