package queue

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

const listLong = `Ls lists the messages of the queue NAME: those that are ready and those that are
delayed by their due times, then those with workers by the ends of their leases, then
the dead letters in the order of their deaths.

The server is read in small steps; messages that are put or handled meanwhile may be
missing, or listed in both of their states.

Exit codes:
  0   also if there is no such message
  64  the arguments are invalid
  69  the server cannot be reached, or refused; what was read before is printed`

const listExample = `  leasewheel queue ls mails
  leasewheel queue ls --state ready,delayed --limit 20 mails
  leasewheel queue ls --json --limit 0 mails | jq -r 'select(.attempts > 3) | .id'`

const deadLong = `Dead lists the dead letters of the queue NAME, in the order of their deaths, each with
its last error.

Exit codes:
  0   also if there is none
  64  the arguments are invalid
  69  the server cannot be reached, or refused; what was read before is printed`

const deadExample = `  leasewheel queue dead mails
  leasewheel queue dead --json --limit 0 mails | jq -r 'select(.error | test("timeout")) | .id' |
    xargs -d '\n' leasewheel queue revive mails`

const (
	defaultLimit        = 100
	defaultPayloadBytes = 64
	// maxCell is the most bytes of an error in a table.
	maxCell = 120
	// tableRows is how many rows are aligned with each other.
	tableRows = 1000
)

// listCommand is one execution of `leasewheel queue ls` or `queue dead`.
type listCommand struct {
	access
	states  []string
	limit   int
	payload int
	dead    bool
}

func newListCommand() *cobra.Command {
	l := &listCommand{}
	cmd := &cobra.Command{
		Use:     "ls [flags] NAME",
		Short:   "List the messages of a queue",
		Long:    listLong,
		Example: listExample,
		RunE:    l.run,

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringSliceVar(&l.states, "state", nil, "list only messages in this `state`: ready, delayed, leased or dead; several with commas")
	l.registerList(cmd)
	return cmd
}

func newDeadCommand() *cobra.Command {
	l := &listCommand{dead: true}
	cmd := &cobra.Command{
		Use:     "dead [flags] NAME",
		Short:   "List the dead letters of a queue",
		Long:    deadLong,
		Example: deadExample,
		RunE:    l.run,

		DisableFlagsInUseLine: true,
	}
	l.registerList(cmd)
	return cmd
}

func (l *listCommand) registerList(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.limit, "limit", defaultLimit, "list at most this `number` of messages; 0 lists all")
	cmd.Flags().IntVar(&l.payload, "payload", defaultPayloadBytes, "print at most this `number` of bytes of each payload, up to a million")
	l.register(cmd, "print each message as a line of JSON")
}

// options returns what the flags select.
func (l *listCommand) options() (o delayqueue.ListOptions, err error) {
	if l.limit < 0 {
		return o, fmt.Errorf("--limit %d: accepted are numbers from 0 up; 0 lists all", l.limit)
	}
	if l.payload < 0 || l.payload > 1_000_000 {
		return o, fmt.Errorf("--payload %d: accepted are 0 to 1000000", l.payload)
	}
	o.MaxPayload = l.payload
	if l.payload == 0 {
		o.MaxPayload = -1
	}
	if l.dead {
		o.States = []delayqueue.State{delayqueue.Dead}
	}
	named := map[string]delayqueue.State{}
	for _, state := range []delayqueue.State{delayqueue.Delayed, delayqueue.Ready, delayqueue.Leased, delayqueue.Dead} {
		named[state.String()] = state
	}
	for _, name := range l.states {
		state, ok := named[name]
		if !ok {
			return o, fmt.Errorf("--state %q: accepted are ready, delayed, leased and dead", name)
		}
		o.States = append(o.States, state)
	}
	return o, nil
}

func (l *listCommand) run(cmd *cobra.Command, args []string) error {
	name, err := nameOf(cmd, args)
	if err != nil {
		return err
	}
	options, err := l.options()
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	if err := l.open(cmd, name, delayqueue.Config{}); err != nil {
		return err
	}
	defer l.close()
	var out messageWriter = &messageTable{cmd: cmd, dead: l.dead}
	if l.json {
		out = messageLines{cmd.OutOrStdout()}
	}
	failure, err := l.list(cmd, options, out)
	if err = cmp.Or(err, out.flush()); err != nil {
		return exit.Errorf(exit.Internal, "writing the list: %w", err)
	}
	return failure
}

// list writes the messages, up to the limit. It returns the failure of the server, or the
// error of the output.
func (l *listCommand) list(cmd *cobra.Command, options delayqueue.ListOptions, out messageWriter) (failure, err error) {
	n := 0
	for info, err := range l.queue.List(cmd.Context(), options) {
		switch {
		case err != nil:
			return l.failed(cmd, err), nil
		case n == l.limit && l.limit > 0:
			out.more()
			return nil, nil
		}
		n++
		if err := out.write(&info); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// messageWriter prints messages.
type messageWriter interface {
	write(info *delayqueue.Info) error
	// more is called if there are more messages than are listed.
	more()
	flush() error
}

// messageLines prints each message as a line of JSON when it is read.
type messageLines struct{ io.Writer }

func (l messageLines) write(info *delayqueue.Info) error {
	return output.WriteEscaped(l.Writer, messageReportOf(info), "")
}

func (messageLines) more()        {}
func (messageLines) flush() error { return nil }

// messageTable prints messages for people.
type messageTable struct {
	cmd   *cobra.Command
	dead  bool
	table output.Table
	cut   bool
}

func (t *messageTable) write(info *delayqueue.Info) error {
	if len(t.table) > tableRows {
		if err := t.table.Write(t.cmd.OutOrStdout()); err != nil {
			return err
		}
		t.table = nil
	}
	id, attempts := output.Quoted(shortened(info.ID)), strconv.Itoa(info.Attempt)
	heading := []string{"ID", "STATE", "TIME", "ATTEMPTS", "PAYLOAD"}
	row := []string{id, info.State.String(), timeCell(info), attempts, payloadCell(info)}
	if t.dead {
		heading = []string{"ID", "DIED", "ATTEMPTS", "ERROR", "PAYLOAD"}
		row = []string{id, secondOf(info.Died), attempts, errorCell(info.LastError), payloadCell(info)}
	}
	if len(t.table) == 0 {
		t.table.Add(heading...)
	}
	t.table.Add(row...)
	return nil
}

func (t *messageTable) more() { t.cut = true }

func (t *messageTable) flush() error {
	if err := t.table.Write(t.cmd.OutOrStdout()); err != nil || !t.cut {
		return err
	}
	_, err := fmt.Fprintln(t.cmd.OutOrStdout(), "and more: --limit 0 lists all")
	return err
}

// timeCell returns the instant that decides about a message in its state.
func timeCell(info *delayqueue.Info) string {
	switch info.State {
	case delayqueue.Leased:
		return "until " + secondOf(info.Until)
	case delayqueue.Dead:
		return "died " + secondOf(info.Died)
	}
	return "due " + secondOf(info.Due)
}

// errorCell returns the beginning of an error.
func errorCell(text string) string {
	switch {
	case text == "":
		return "-"
	case len(text) > maxCell:
		return output.Quoted(whole(text[:maxCell])) + "…"
	}
	return output.Quoted(text)
}
