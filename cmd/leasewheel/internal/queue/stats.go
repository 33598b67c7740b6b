package queue

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

const statsLong = `Stats counts the messages of the queue NAME by state, and shows for how long the
backlog has waited, when the first waiting message is due, and when the oldest dead
letter died. It takes one request, of the same time for any number of messages.

Exit codes:
  0   also if the queue is empty
  64  the arguments are invalid
  69  the server cannot be reached, or refused`

const statsExample = `  leasewheel queue stats mails
  leasewheel queue stats --json mails | jq .dead`

// statsCommand is one execution of `leasewheel queue stats`.
type statsCommand struct{ access }

func newStatsCommand() *cobra.Command {
	s := &statsCommand{}
	cmd := &cobra.Command{
		Use:     "stats [flags] NAME",
		Short:   "Count the messages of a queue",
		Long:    statsLong,
		Example: statsExample,
		RunE:    s.run,

		DisableFlagsInUseLine: true,
	}
	s.register(cmd, "print JSON")
	return cmd
}

func (s *statsCommand) run(cmd *cobra.Command, args []string) error {
	name, err := nameOf(cmd, args)
	if err != nil {
		return err
	}
	if err := s.open(cmd, name, delayqueue.Config{}); err != nil {
		return err
	}
	defer s.close()
	stats, err := s.queue.Stats(cmd.Context())
	if err != nil {
		return s.failed(cmd, err)
	}
	write := writeQueueStats
	if s.json {
		write = writeQueueStatsJSON
	}
	if err := write(cmd.OutOrStdout(), name, &stats); err != nil {
		return exit.Errorf(exit.Internal, "writing the counts: %w", err)
	}
	return nil
}

func writeQueueStats(w io.Writer, name string, s *delayqueue.Stats) error {
	table := output.Table{{"queue", output.Quoted(name)}}
	backlog := output.Grouped(s.Ready)
	if s.Ready > 0 {
		backlog += fmt.Sprintf(", for %v", output.Round(s.Age))
	}
	table.Add("ready", backlog)
	table.Add("delayed", output.Grouped(s.Delayed))
	table.Add("leased", output.Grouped(s.Leased))
	dead := output.Grouped(s.Dead)
	if s.Dead > 0 {
		dead += ", since " + secondOf(s.OldestDeath)
	}
	table.Add("dead", dead)
	if !s.NextDue.IsZero() {
		table.Add("first due", secondOf(s.NextDue))
	}
	return table.Write(w)
}

// StatsReport is what a queue has in JSON. docs/queue-stats.schema.json describes it.
type StatsReport struct {
	Queue       string        `json:"queue"`
	Ready       int64         `json:"ready"`
	Delayed     int64         `json:"delayed"`
	Leased      int64         `json:"leased"`
	Dead        int64         `json:"dead"`
	Age         time.Duration `json:"age_ns"`
	NextDue     *time.Time    `json:"next_due,omitempty"`
	OldestDeath *time.Time    `json:"oldest_death,omitempty"`
}

func writeQueueStatsJSON(w io.Writer, name string, s *delayqueue.Stats) error {
	return output.WriteEscaped(w, StatsReport{
		Queue: name, Ready: s.Ready, Delayed: s.Delayed, Leased: s.Leased, Dead: s.Dead,
		Age: s.Age, NextDue: output.Instant(s.NextDue), OldestDeath: output.Instant(s.OldestDeath),
	}, "  ")
}
