//go:build unix

// Package demo is leasewheel demo: processes that contend for a lock, one of them frozen and one
// killed, and thousands of leases, with a report of what they saw.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/reportfile"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

const long = `Demo shows the library at work and checks its promises, in less than a minute. It
needs no server: it runs one inside this process, or uses a real one with --store.

Several processes contend for one lock and add to one counter while they hold it.
One of them is frozen (SIGSTOP) for longer than its lease and writes as soon as it
continues; one is killed (SIGKILL) while it holds the lock. Meanwhile this process
keeps some thousand leases alive on one timer wheel, deletes a few of them on the
server, and measures the accuracy of the wheel.

The report lists the observations. With --html it is also a page, which shows as a
timeline who waited for, held, lost and took over each lease, and when. After Ctrl-C the
page has what was seen until then.

Exit codes:
  0      every promise was kept
  1      one was broken, which the report names
  64     the arguments are invalid
  69     the server cannot be reached, or refused
  70     the page was not written
  75     the machine was overloaded, and a promise not kept for that reason
  128+N  signal N ended it`

// timeLimit ends a demo that hangs.
const timeLimit = 60 * time.Second

// embeddedName is the report's name of the embedded server.
const embeddedName = "embedded server"

// noticeLimit is how much later than possible, beyond one tick, a holder may learn of its
// loss.
const noticeLimit = 50 * time.Millisecond

// flags set the size of the demo.
type flags struct {
	server    connect.Flags
	processes int
	leases    int
	ttl       duration.Flag
	duration  duration.Flag
	json      bool
	html      string
}

// NewCommand makes leasewheel demo.
func NewCommand() *cobra.Command {
	f := flags{ttl: duration.Flag(3 * time.Second), duration: duration.Flag(12 * time.Second)}
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Show and check the library, with processes that freeze and die",
		Long:    long,
		Example: "  leasewheel demo\n  leasewheel demo --store redis://127.0.0.1:6379 --json\n  leasewheel demo --html leases.html",
		Args:    exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.validate(), reportfile.Check(f.html)); err != nil {
				return exit.UsageError(cmd, err)
			}
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.processes, "processes", 6, "processes that contend for the lock, 3 to 64")
	flags.IntVar(&f.leases, "leases", 3000, "leases kept alive meanwhile, 10 to 100000")
	flags.Var(&f.ttl, "ttl", "time to live of every lease, 1s to 10s")
	flags.Var(&f.duration, "duration", "how long to contend, at least; up to 40s")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.StringVar(&f.html, "html", "", "also write a page with the timeline of the leases, in one file, to `FILE`")
	f.server.Register(flags)
	flags.Lookup("store").Usage = "URL of a server to use instead of the embedded one"
	return cmd
}

func (f *flags) validate() error {
	ttl, duration := time.Duration(f.ttl), time.Duration(f.duration)
	switch {
	case f.processes < 3 || f.processes > 64:
		return fmt.Errorf("--processes %d: accepted are 3 to 64; one is frozen, one killed", f.processes)
	case f.leases < 10 || f.leases > 100_000:
		return fmt.Errorf("--leases %d: accepted are 10 to 100000", f.leases)
	case ttl < time.Second || ttl > 10*time.Second:
		return fmt.Errorf("--ttl %v: accepted are 1s to 10s", ttl)
	case duration > 40*time.Second:
		return fmt.Errorf("--duration %v: accepted are 0 to 40s", duration)
	}
	return nil
}

func (f *flags) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeLimit, fmt.Errorf("the demo did not end within %v", timeLimit))
	defer cancel()
	ctx, stop := interrupt.Context(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer stop()

	report, err := f.show(ctx)
	var pageErr error
	if report != nil {
		report.at, report.version, report.repeat, report.machine = time.Now().UTC(), version.Name(), reportfile.RepeatCommand(cmd), bench.ReadMachine()
		if pageErr = reportfile.Write(f.html, report.writeHTML); pageErr != nil {
			pageErr = fmt.Errorf("demo: the page was not written: %w", pageErr)
		}
	}
	if sig, ok := errors.AsType[interrupt.Error](context.Cause(ctx)); ok {
		return &exit.Error{Code: exit.Signal + int(sig), Err: pageErr}
	}
	if err != nil {
		code := exitCode(err)
		if report != nil && code != exit.Usage && report.Stalls.explain(report.TTL) {
			code, err = exit.Overloaded, fmt.Errorf("the machine was overloaded (%v): %w", &report.Stalls, err)
		}
		return exit.Errorf(code, "demo: %w", errors.Join(err, pageErr))
	}
	err = f.print(report)
	if pageErr != nil {
		return &exit.Error{Code: exit.Internal, Err: pageErr}
	}
	return err
}

// print writes the report to standard output.
func (f *flags) print(r *report) error {
	var err error
	if f.json {
		err = output.WriteEscaped(os.Stdout, r, "  ")
	} else {
		err = r.writeText(os.Stdout, terminal.Is(os.Stdout) && os.Getenv("NO_COLOR") == "")
	}
	if err != nil {
		return exit.Errorf(exit.Internal, "demo: %w", err)
	}
	return r.verdict()
}

// show runs the demo on the server that the flags name, or on the embedded one.
func (f *flags) show(ctx context.Context) (*report, error) {
	url, err := f.server.ResolveOne("")
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	name := ""
	if url == "" {
		name = embeddedName
		embedded, err := startEmbeddedServer()
		if err != nil {
			return nil, &exit.Error{Code: exit.Unavailable, Err: err}
		}
		defer embedded.close()
		url = embedded.url()
	}
	id := "leasewheel:demo:" + rand.Text()[:8]
	job := workerJob{
		Redis: url, ConnectionFlags: f.server.ConnectionFlags,
		Lock: id + ":lock", Counter: id + ":counter", TTL: time.Duration(f.ttl),
	}
	server, err := job.open()
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	defer server.Close()
	keeper, err := newKeeper(server, id+":lease", job.TTL)
	if err != nil {
		return nil, err
	}
	lease, err := keeper.locker.Mutex(job.Lock).TryLock(ctx)
	if err == nil { // the server grants locks: a replica, or a full server, refuses them
		err = lease.Unlock(ctx)
	}
	if err != nil {
		return nil, connect.Unavailable(ctx, server, errors.Join(err, keeper.close()))
	}
	if name == "" {
		name = server.Name(ctx)
	}
	d, err := newDemo(f, job, server, keeper)
	if err != nil {
		return nil, err
	}
	d.report.Server, d.embedded = name, name == embeddedName
	return d.run(ctx)
}

// expected is about how long the demo takes: a freeze and a death, and at least the time
// to contend.
func (f *flags) expected() time.Duration {
	return max(time.Duration(f.duration), 3*time.Duration(f.ttl))
}

// exitCode is the exit code for a demo that could not be shown.
func exitCode(err error) int {
	if failed, ok := errors.AsType[*exit.Error](err); ok {
		return failed.Code
	}
	if errors.Is(err, lock.ErrUnavailable) {
		return exit.Unavailable
	}
	if _, ok := errors.AsType[*redisstore.ServerError](err); ok {
		return exit.Unavailable
	}
	return exit.Broken
}
