// Package doctor is leasewheel doctor: it examines the servers on which locks are stored.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock/driver"
)

const long = `Doctor examines the servers on which locks are stored, and names each promise that
their settings, their state or the network break: version, eviction, memory,
persistence, replicas, the rights of the user, clocks, round trips against --ttl.
Of sentinels it examines the master and its replicas, of a cluster every master;
several servers (--store more than once) are also compared with each other.

It acquires no lock and leaves nothing behind. It tries the rights on names that no
client uses: on names that begin with NAME, of a user that may use only such. A right
that is missing leaves an entry in the server's ACL LOG. It ends within half a minute,
also if a server does not answer.

Findings are errors, which break a promise now, warnings, which break one after a
further fault, and notes: limits of the setup, and what could not be examined.

Exit codes:
  0   no finding, or notes only
  1   at least one error
  2   at least one warning, and no error
  64  the arguments are invalid
  69  no server can be reached, or it refused`

const example = `  leasewheel doctor
  leasewheel doctor --ttl 5s orders:
  leasewheel doctor --json | jq -r '.findings[] | select(.severity == "error") | .found'`

// command is one execution of `leasewheel doctor`.
type command struct {
	flags  connect.Flags
	stored connect.StoreFlags
	json   bool
	ttl    duration.Flag
}

// NewCommand makes leasewheel doctor.
func NewCommand() *cobra.Command {
	d := &command{ttl: duration.Flag(driver.DefaultTTL)}
	cmd := &cobra.Command{
		Use:     "doctor [flags] [NAME]",
		Short:   "Find what breaks the locks' promises on your servers",
		Long:    long,
		Example: example,
		RunE:    d.run,

		DisableFlagsInUseLine: true,
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&d.json, "json", false, "print JSON")
	flags.Var(&d.ttl, "ttl", "the shortest time to live of the locks, with which round trips are compared")
	d.flags.Register(flags)
	d.stored.Register(flags)
	return cmd
}

func (d *command) run(cmd *cobra.Command, args []string) error {
	options := driver.CheckOptions{TTL: time.Duration(d.ttl)}
	switch len(args) {
	case 0:
	case 1:
		options.Name = args[0]
		if err := d.stored.ValidateNames(args[0]); err != nil {
			return exit.UsageError(cmd, err)
		}
	default:
		return exit.UsageError(cmd, fmt.Errorf("doctor takes one NAME, got %d", len(args)))
	}
	if options.TTL <= 0 || options.TTL > driver.MaxTTL {
		return exit.UsageError(cmd, fmt.Errorf("--ttl %v: accepted are durations above 0, up to %v", options.TTL, driver.MaxTTL))
	}
	config, err := d.stored.Config()
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	servers, err := d.flags.OpenNodes(os.Getenv(connect.URLVariable), config)
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	defer servers.Close()
	store, done, err := servers.Store()
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	defer done() //nolint:errcheck // the report is complete by then
	checker, ok := store.(driver.Checker)
	if !ok {
		return exit.UsageError(cmd, fmt.Errorf("doctor examines no server of %s", servers[0].Engine))
	}
	progress := terminal.StartMeter(os.Stderr, func() string { return "examining " + servers.Address() })
	report, err := checker.Check(cmd.Context(), options)
	progress.Stop()
	if err != nil {
		return d.unavailable(cmd, servers, err)
	}
	write := writeText
	if d.json {
		write = writeJSON
	}
	if err := write(cmd.OutOrStdout(), &report); err != nil {
		return exit.Errorf(exit.Internal, "writing the report: %w", err)
	}
	return exitOf(&report)
}

// unavailable is the failure of a check that reached no server.
func (d *command) unavailable(cmd *cobra.Command, servers connect.Servers, err error) error {
	if len(servers) == 1 {
		return connect.Unavailable(cmd.Context(), servers[0], err)
	}
	err = servers.Mismatch(cmd.Context(), err)
	if _, mismatched := errors.AsType[*connect.MismatchError](err); mismatched {
		return exit.Errorf(exit.Unavailable, "%w", err)
	}
	return exit.Errorf(exit.Unavailable, "servers %s: %w", servers.Address(), err)
}

// exitOf returns an error with the exit code for the findings.
func exitOf(r *driver.Report) error {
	code := exit.OK
	for _, f := range r.Findings {
		switch {
		case f.Severity == driver.SeverityError:
			return &exit.Error{Code: exit.Broken}
		case f.Severity == driver.SeverityWarning:
			code = exit.Warned
		}
	}
	if code == exit.OK {
		return nil
	}
	return &exit.Error{Code: code}
}

// Report is a check in JSON. docs/doctor.schema.json describes it.
type Report struct {
	Servers  []serverReport  `json:"servers"`
	Findings []findingReport `json:"findings"`
}

type serverReport struct {
	Address        string        `json:"address"`
	ID             string        `json:"id,omitempty"`
	Version        string        `json:"version,omitempty"`
	Role           string        `json:"role,omitempty"`
	RoundTrip      time.Duration `json:"round_trip_ns,omitempty"`
	WorstRoundTrip time.Duration `json:"worst_round_trip_ns,omitempty"`
	Ahead          time.Duration `json:"ahead_ns"`
	AheadError     time.Duration `json:"ahead_error_ns,omitempty"`
}

type findingReport struct {
	Severity string `json:"severity"`
	Server   string `json:"server,omitempty"`
	Topic    string `json:"topic"`
	Found    string `json:"found"`
	Promise  string `json:"promise"`
	Advice   string `json:"advice"`
}

func writeJSON(w io.Writer, r *driver.Report) error {
	report := Report{Servers: []serverReport{}, Findings: []findingReport{}}
	for _, s := range r.Servers {
		report.Servers = append(report.Servers, serverReport(s))
	}
	for _, f := range r.Findings {
		report.Findings = append(report.Findings, findingReport{f.Severity.String(), f.Server, f.Topic, f.Found, f.Promise, f.Advice})
	}
	return output.WriteEscaped(w, report, "  ")
}

// writeText prints a check for people.
func writeText(w io.Writer, r *driver.Report) error {
	table := output.Table{{"SERVER", "VERSION", "ROLE", "ROUND TRIP", "CLOCK"}}
	for _, s := range r.Servers {
		round, clock := "-", "-"
		if s.WorstRoundTrip > 0 {
			round = fmt.Sprintf("%v, at most %v", output.Round(s.RoundTrip), output.Round(s.WorstRoundTrip))
		}
		if s.AheadError > 0 {
			clock = clockText(s.Ahead, s.AheadError)
		}
		table.Add(output.Visible(s.Address), cmp.Or(output.Visible(s.Version), "-"), cmp.Or(output.Visible(s.Role), "-"), round, clock)
	}
	if err := table.Write(w); err != nil {
		return err
	}
	if len(r.Findings) == 0 {
		_, err := fmt.Fprintln(w, "\nno findings")
		return err
	}
	for _, f := range r.Findings {
		heading := strings.ToUpper(f.Severity.String()) + "  " + f.Topic
		if f.Server != "" {
			heading += "  " + f.Server
		}
		if _, err := fmt.Fprintf(w, "\n%s\n  found    %s\n  promise  %s\n  do       %s\n",
			output.Visible(heading), hanging(f.Found), hanging(f.Promise), hanging(f.Advice)); err != nil {
			return err
		}
	}
	return nil
}

// hanging returns a text of a finding. On a terminal its lines end between words, and begin
// behind the word that names the text.
func hanging(text string) string {
	const indent = "           "
	text = output.Visible(text)
	if columns := terminal.Columns(os.Stdout); columns > 2*len(indent) {
		text = strings.ReplaceAll(output.Filled(text, columns-len(indent)), "\n", "\n"+indent)
	}
	return text
}

// clockText describes by how much a server's clock is ahead of this host's.
func clockText(ahead, give time.Duration) string {
	switch {
	case ahead.Abs() <= give:
		return fmt.Sprintf("agrees within %v", output.Round(give))
	case ahead < 0:
		return fmt.Sprintf("%v behind, ± %v", output.Round(-ahead), output.Round(give))
	}
	return fmt.Sprintf("%v ahead, ± %v", output.Round(ahead), output.Round(give))
}
