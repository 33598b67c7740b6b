package queue

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

const reviveLong = `Revive returns dead letters to the queue NAME, due at once and with their attempts
counted from zero again. With --all it revives as many as there are when it begins,
in the order of their deaths. Flags precede NAME: an ID may begin with "-".

Exit codes:
  0   every ID was a dead letter; with --all also if there is none
  1   one of them was not; the others are revived
  64  the arguments are invalid; nothing was done
  69  the server cannot be reached, or refused; those printed are revived`

const reviveExample = `  leasewheel queue revive mails 'invoice 7'
  leasewheel queue revive --all mails`

const cancelLong = `Cancel drops waiting messages, or dead letters, of the queue NAME. A message with a
worker is left alone. Flags precede NAME: an ID may begin with "-".

Exit codes:
  0   every ID was dropped
  1   one of them was not: no message has this id, or a worker has it
  64  the arguments are invalid; nothing was done
  69  the server cannot be reached, or refused; those printed are dropped`

const cancelExample = `  leasewheel queue cancel mails 'invoice 7' 'invoice 8'`

// changeReport is what was done about a message, in JSON. docs/queue-change.schema.json
// describes it.
type changeReport struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
}

// The outcomes of a changeReport.
const (
	outcomePut       = "put"
	outcomeDuplicate = "duplicate"
	outcomeRevived   = "revived"
	outcomeNotDead   = "not dead"
	outcomeCancelled = "cancelled"
	outcomeNotFound  = "not found"
	outcomeLeased    = "leased"
)

// outcomeTexts are the outcomes for people.
var outcomeTexts = map[string]string{
	outcomePut:       "put",
	outcomeDuplicate: "the queue has a message of this id already",
	outcomeRevived:   "revived",
	outcomeNotDead:   "no dead letter has this id",
	outcomeCancelled: "dropped",
	outcomeNotFound:  "no message has this id",
	outcomeLeased:    "a worker has it; it was left alone",
}

// report prints what was done about a message.
func (a *access) report(cmd *cobra.Command, id, outcome string) error {
	var err error
	if a.json {
		err = output.WriteEscaped(cmd.OutOrStdout(), changeReport{shortened(id), outcome}, "")
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", output.Quoted(shortened(id)), outcomeTexts[outcome])
	}
	if err != nil {
		return exit.Errorf(exit.Internal, "writing what was done: %w", err)
	}
	return nil
}

// reviveCommand is one execution of `leasewheel queue revive`.
type reviveCommand struct {
	access
	all bool
}

func newReviveCommand() *cobra.Command {
	r := &reviveCommand{}
	cmd := &cobra.Command{
		Use:     "revive [flags] {NAME ID... | --all NAME}",
		Short:   "Return dead letters to a queue",
		Long:    reviveLong,
		Example: reviveExample,

		DisableFlagsInUseLine: true,
	}
	takeTexts(cmd, r.run)
	cmd.Flags().BoolVar(&r.all, "all", false, "revive all dead letters")
	r.register(cmd, "print each letter as a line of JSON")
	return cmd
}

func (r *reviveCommand) run(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return exit.UsageError(cmd, errors.New("the NAME of a queue is missing"))
	case r.all && len(args) > 1:
		return exit.UsageError(cmd, errors.New("IDs and --all exclude each other"))
	case !r.all && len(args) == 1:
		return exit.UsageError(cmd, errors.New("ID is missing; --all revives all dead letters"))
	}
	if err := r.open(cmd, args[0], delayqueue.Config{}); err != nil {
		return err
	}
	defer r.close()
	if r.all {
		return r.reviveAll(cmd)
	}
	return r.each(cmd, args[1:], func(id string) (string, bool, error) {
		n, err := r.queue.Revive(cmd.Context(), id)
		if n == 1 {
			return outcomeRevived, true, err
		}
		return outcomeNotDead, false, err
	})
}

// reviveAll revives the letters that are dead now. A letter that dies again meanwhile goes
// to the end of the list, and is not counted.
func (r *reviveCommand) reviveAll(cmd *cobra.Command) error {
	stats, err := r.queue.Stats(cmd.Context())
	if err != nil {
		return r.failed(cmd, err)
	}
	left := stats.Dead
	for letter, err := range r.queue.List(cmd.Context(), delayqueue.ListOptions{States: []delayqueue.State{delayqueue.Dead}, MaxPayload: -1}) {
		if err != nil {
			return r.failed(cmd, err)
		}
		if left--; left < 0 {
			return nil
		}
		if delayqueue.ValidateID(letter.ID) != nil {
			continue // another client's
		}
		n, err := r.queue.Revive(cmd.Context(), letter.ID)
		if err != nil {
			return r.failed(cmd, fmt.Errorf("message %s: %w", output.Quoted(shortened(letter.ID)), err))
		}
		if n == 0 {
			continue // revived or dropped by another client
		}
		if err := r.report(cmd, letter.ID, outcomeRevived); err != nil {
			return err
		}
	}
	return nil
}

// each changes messages one by one, and prints the outcomes. If an id is invalid, it
// changes none.
func (a *access) each(cmd *cobra.Command, ids []string, change func(id string) (outcome string, done bool, err error)) error {
	for _, id := range ids {
		if err := delayqueue.ValidateID(id); err != nil {
			return exit.UsageError(cmd, err)
		}
	}
	var undone error
	for _, id := range ids {
		outcome, done, err := change(id)
		if err != nil {
			return a.failed(cmd, err)
		}
		if err := a.report(cmd, id, outcome); err != nil {
			return err
		}
		if !done {
			undone = cmp.Or(undone, error(&exit.Error{Code: exit.NotDone})) // reported already
		}
	}
	return undone
}

// cancelCommand is one execution of `leasewheel queue cancel`.
type cancelCommand struct{ access }

func newCancelCommand() *cobra.Command {
	c := &cancelCommand{}
	cmd := &cobra.Command{
		Use:     "cancel [flags] NAME ID...",
		Short:   "Drop messages of a queue",
		Long:    cancelLong,
		Example: cancelExample,

		DisableFlagsInUseLine: true,
	}
	takeTexts(cmd, c.run)
	c.register(cmd, "print each message as a line of JSON")
	return cmd
}

func (c *cancelCommand) run(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return exit.UsageError(cmd, errors.New("cancel takes the NAME of a queue and the IDs of messages"))
	}
	if err := c.open(cmd, args[0], delayqueue.Config{}); err != nil {
		return err
	}
	defer c.close()
	return c.each(cmd, args[1:], func(id string) (string, bool, error) {
		switch err := c.queue.Cancel(cmd.Context(), id); {
		case errors.Is(err, delayqueue.ErrNotFound):
			return outcomeNotFound, false, nil
		case errors.Is(err, delayqueue.ErrLeased):
			return outcomeLeased, false, nil
		default:
			return outcomeCancelled, true, err
		}
	})
}
