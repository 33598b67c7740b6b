//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

const renewalLong = `Acquires very many leases, keeps them alive with one watchdog, and measures what a
renewal costs the client and the server, how late renewals come, and whether any
lease is lost. Before that it does the same in the way that most libraries leave to
their users: with a goroutine and a ticker for each lease.

The server is the one that --store names, or one that --start starts for the time
of the measurement. With --stop-master one master of a cluster is stopped
(SIGSTOP) for one and a half TTLs in the middle of it: the loss of its leases must be
reported in time, and those of the other masters must not be affected.

See https://github.com/leasewheel/leasewheel/blob/main/docs/bench.md

Exit codes:
  0      every lease was renewed in time
  1      a lease was lost, or renewed when less than half of its time was left,
         that should not have been
  64     the arguments are invalid
  69     the server cannot be reached, refused, or could not be started
  70     the measurement failed, or its report was not written
  128+N  signal N ended it`

// Limits of the flags. A million leases take a few hundred megabytes here and as
// much at the server.
const (
	maxBenchLeases   = 10_000_000
	maxBenchBaseline = 200_000
)

// renewalFlags select what to measure.
type renewalFlags struct {
	server     connect.Flags
	start      string
	leases     int
	baseline   int
	ttl        duration.Flag
	duration   duration.Flag
	stopMaster bool
	json       bool
}

func newRenewalCommand() *cobra.Command {
	f := renewalFlags{ttl: duration.Flag(driver.DefaultTTL), duration: duration.Flag(30 * time.Second)}
	cmd := &cobra.Command{
		Use:   "renewal",
		Short: "Measure what it costs to keep leases alive",
		Long:  renewalLong,
		Example: `  leasewheel bench renewal --start single
  leasewheel bench renewal --store redis://127.0.0.1:6379 -n 100000 --duration 2m
  leasewheel bench renewal --start cluster -n 100000 --duration 90s --stop-master --json`,
		Args: exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("baseline") {
				f.baseline = min(f.leases, 10_000)
			}
			if err := f.validate(); err != nil {
				return exit.UsageError(cmd, err)
			}
			return runBench(cmd, f.json, f.measure)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVarP(&f.leases, "leases", "n", 10_000, "leases kept alive at once")
	flags.Var(&f.ttl, "ttl", "time to live of every lease, 1s and more")
	flags.Var(&f.duration, "duration", "how long to measure, once all leases are in their rhythm")
	flags.IntVar(&f.baseline, "baseline", 0, "leases of the goroutine-and-ticker baseline; 0 leaves it out (default: as many as --leases, 10000 at the most)")
	flags.BoolVar(&f.stopMaster, "stop-master", false, "stop a master of the cluster, on this machine, for one and a half TTLs")
	flags.StringVar(&f.start, "start", "", "start servers for this measurement: single, or cluster for three masters; needs redis-server")
	f.server.Register(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	return cmd
}

func (f *renewalFlags) validate() error {
	ttl, duration := time.Duration(f.ttl), time.Duration(f.duration)
	switch {
	case f.leases < 1 || f.leases > maxBenchLeases:
		return fmt.Errorf("--leases %d: accepted are 1 to %d", f.leases, maxBenchLeases)
	case f.baseline < 0 || f.baseline > maxBenchBaseline:
		return fmt.Errorf("--baseline %d: accepted are 0 to %d", f.baseline, maxBenchBaseline)
	case ttl < time.Second || ttl > driver.MaxTTL:
		return fmt.Errorf("--ttl %v: accepted are 1s to %v", ttl, driver.MaxTTL)
	case duration < time.Second:
		return fmt.Errorf("--duration %v: accepted are 1s and more", duration)
	case f.stopMaster && duration < 2*ttl:
		return fmt.Errorf("--duration %v: with --stop-master it must be two TTLs, %v, or more", duration, 2*ttl)
	}
	return validStart(f.start, f.server)
}

// measure measures the baseline and the watchdog, one after the other.
func (f *renewalFlags) measure(ctx context.Context) (report *renewalReport, err error) {
	s, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	progress := new(progress)
	m := terminal.StartMeter(os.Stderr, progress.line)
	defer m.Stop()

	report = newRenewalReport(f, s)
	if f.baseline > 0 {
		progress.what = "baseline"
		fleet := s.fleet(f.baseline, time.Duration(f.ttl))
		// In one TTL every lease is renewed three times: more adds no information.
		window := min(time.Duration(f.duration), fleet.ttl)
		if report.Baseline, err = measureBaseline(ctx, fleet, window, progress); err != nil {
			return nil, err
		}
	}
	progress.what = "watchdog"
	run := watchdogRun{fleet: s.fleet(f.leases, time.Duration(f.ttl)), window: time.Duration(f.duration), stopMaster: f.stopMaster}
	if err := run.measure(ctx, progress, report); err != nil {
		return nil, err
	}
	return report, nil
}

// open connects to the server, or starts one.
func (f *renewalFlags) open(ctx context.Context) (*measuredServer, error) {
	// The counters of fencing tokens expire soon after the leases of the measurement.
	config := redisstore.Config{FenceTTL: 2 * time.Duration(f.ttl)}
	s, err := openBenchServer(ctx, f.start, f.server, config)
	if err != nil {
		return nil, err
	}
	if f.stopMaster && s.cluster() == nil {
		return nil, errors.Join(&exit.Error{Code: exit.Usage, Err: errors.New("--stop-master needs a cluster: name it with redis-cluster://, or use --start cluster")}, s.Close())
	}
	return s, nil
}
