package look

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/driver"
)

const unlockLong = `Unlock --force takes locks away from their holders, wakes the waiters, and prints
the former holders. It is for locks whose holder is known to be stuck; the lock of
a dead holder is free after its TTL without it.

A live holder learns of it at its next renewal, at most a third of its TTL later.
Until then it and the next holder may work at the same time, and only a resource
that compares fencing tokens keeps them apart.

Name all the servers of a quorum (--store more than once): a lock that is taken away
on only some of them returns to its holder with the next renewal.

Exit codes:
  0   every lock was held, and is now free
  1   one of them was not held
  64  the arguments are invalid, or --force is missing; nothing was done
  69  the server, or one of several, cannot be reached, or refused, or one of
      the names is not that of a lock; locks named before are free`

const unlockExample = `  leasewheel inspect orders:42 && leasewheel unlock --force orders:42`

// unlockCommand is one execution of `leasewheel unlock`.
type unlockCommand struct {
	lookup
	force bool
}

// NewUnlockCommand makes leasewheel unlock.
func NewUnlockCommand() *cobra.Command {
	u := &unlockCommand{}
	cmd := &cobra.Command{
		Use:     "unlock --force [flags] NAME...",
		Short:   "Take locks away from their holders",
		Long:    unlockLong,
		Example: unlockExample,
		RunE:    u.run,

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&u.force, "force", false, "confirm that the locks are to be taken from their holders")
	u.register(cmd, "print the former state of each lock as a line of JSON")
	cmd.ValidArgsFunction = u.completeNames(0)
	return cmd
}

func (u *unlockCommand) run(cmd *cobra.Command, names []string) error {
	if len(names) == 0 {
		return exit.UsageError(cmd, errors.New("NAME is missing"))
	}
	if err := u.stored.ValidateNames(names...); err != nil {
		return exit.UsageError(cmd, err)
	}
	if !u.force {
		return exit.UsageError(cmd, errors.New("unlock takes locks away from holders that may be at work; confirm with --force"))
	}
	if err := u.open(cmd); err != nil {
		return err
	}
	defer u.close()
	var foreign, free error
	for _, name := range names {
		// All servers at once: a holder with a majority would get its lock again on the
		// others.
		sights := u.look(func(v *view) (driver.Info, error) {
			info, err := v.locker.ForceRelease(cmd.Context(), name)
			if err != nil {
				err = fmt.Errorf("lock %s: %w", output.Quoted(name), err)
			}
			return info, err
		})
		held := false
		for _, s := range sights {
			if s.err != nil {
				continue
			}
			if err := u.print(cmd.OutOrStdout(), &s); err != nil {
				return exit.Errorf(exit.Internal, "writing what was done: %w", err)
			}
			held = held || s.Held()
			if s.Foreign != "" {
				foreign = errors.Join(foreign, fmt.Errorf("%s is a %s, not a lock of this format; it was left alone", s.subject(), output.Quoted(s.Foreign)))
			}
		}
		if err := failure(cmd, sights); err != nil {
			if foreign != nil {
				err = exit.Errorf(exit.Unavailable, "%w", errors.Join(foreign, err))
			}
			return err
		}
		if !held {
			free = &exit.Error{Code: exit.NotHeld} // reported already
		}
	}
	if foreign != nil {
		return exit.Errorf(exit.Unavailable, "%w", foreign)
	}
	return free
}

// subject names a lock, and its server if there are several.
func (s *sight) subject() string {
	if s.label == "" {
		return output.Quoted(s.Name)
	}
	return output.Quoted(s.Name) + " at " + s.label
}

// print prints the state of a lock before it was forced open.
func (u *unlockCommand) print(w io.Writer, was *sight) error {
	if u.json {
		return output.WriteEscaped(w, reportOf(was.label, &was.Info), "")
	}
	if was.Foreign != "" {
		return nil // reported on standard error
	}
	if !was.Held() {
		_, err := fmt.Fprintf(w, "%s: it was not held\n", was.subject())
		return err
	}
	now := time.Now()
	for _, h := range was.Holders {
		if _, err := fmt.Fprintf(w, "%s: taken from %s\n", was.subject(), holderText(&h, now)); err != nil {
			return err
		}
	}
	if more := was.HolderCount - int64(len(was.Holders)); more > 0 {
		_, err := fmt.Fprintf(w, "%s: and from %s more\n", was.subject(), output.Grouped(more))
		return err
	}
	return nil
}
