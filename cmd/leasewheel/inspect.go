package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/lock"
)

const inspectLong = `Inspect tells who holds the lock NAME: the process, its host, since when and how
often, how long its lease runs on unless it is renewed, the fencing token, and
who waits in the queue of a fair lock. It disturbs nobody.

Exit codes:
  0   the name is taken: by a lock, or by something else
  1   nobody holds the lock
  64  the arguments make no sense
  69  the server cannot be reached, or refused`

const inspectExample = `  leasewheel inspect orders:42
  leasewheel inspect --json orders:42 | jq -r '.holders[].client.host'`

func newInspectCommand() *cobra.Command {
	l := &lookup{}
	cmd := &cobra.Command{
		Use:     "inspect [flags] NAME",
		Short:   "Tell who holds a lock",
		Long:    inspectLong,
		Example: inspectExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.inspect(cmd, args)
		},
		DisableFlagsInUseLine: true,
	}
	l.register(cmd, "print JSON")
	return cmd
}

func (l *lookup) inspect(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError(cmd, errors.New("inspect takes the NAME of one lock"))
	}
	if err := lock.ValidateName(args[0]); err != nil {
		return usageError(cmd, err)
	}
	if err := l.open(cmd); err != nil {
		return err
	}
	defer l.close()
	info, err := l.locker.Inspect(cmd.Context(), args[0])
	if err != nil {
		return l.failed(cmd, err)
	}
	if l.json {
		err = writeEscaped(cmd.OutOrStdout(), reportOf(&info), "  ")
	} else {
		err = writeInfo(cmd.OutOrStdout(), &info, time.Now())
	}
	switch {
	case err != nil:
		return exitf(exitUnavailable, "writing the report: %w", err)
	case !info.Held() && info.Foreign == "":
		return &exitError{code: exitNotHeld}
	}
	return nil
}

// writeInfo describes a lock for people.
func writeInfo(w io.Writer, info *lock.Info, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fact := func(what, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	fact("lock", "%s", quoted(info.Name))
	switch {
	case info.Foreign != "":
		fact("taken by", "a %s, which is not a lock of this format", quoted(info.Foreign))
	case !info.Held():
		fact("holder", "nobody")
	default:
		fact("kind", "%s", kindName(info))
	}
	switch {
	case info.TTL > 0:
		fact("ends", "in %v, unless renewed", round3(info.TTL))
	case info.Held() || info.Foreign != "":
		fact("ends", "never by itself")
	}
	if info.Token != 0 {
		fact("token", "%d", info.Token)
	}
	for _, h := range info.Holders {
		text := holderText(&h, now)
		if info.HolderCount > 1 && h.TTL > 0 {
			text += fmt.Sprintf(", ends in %v", round3(h.TTL))
		}
		fact("holder", "%s", text)
	}
	if more := info.HolderCount - int64(len(info.Holders)); more > 0 {
		fact("", "and %s more", grouped(more))
	}
	for _, waiter := range info.Waiters {
		place := "its place has run out"
		if waiter.TTL > 0 {
			place = fmt.Sprintf("place kept for %v", round3(waiter.TTL))
		}
		fact("waiter", "%s, %s", ownerText(waiter.Client, waiter.Owner), place)
	}
	if more := info.WaiterCount - int64(len(info.Waiters)); more > 0 {
		fact("", "and %s more", grouped(more))
	}
	return table.Flush()
}

// holderText is all that is known of a holder.
func holderText(h *lock.Holder, now time.Time) string {
	text := ownerText(h.Client, h.Owner)
	if h.Write {
		text += ", writing"
	}
	if h.Holds > 1 {
		text += fmt.Sprintf(", held %s times", grouped(h.Holds))
	}
	if !h.Since.IsZero() {
		text += fmt.Sprintf(", for %s since %s", sinceThen(h.Since, now), h.Since.UTC().Format(time.RFC3339))
	}
	return text
}

// ownerText says who an owner is, as people know it and as the server does.
func ownerText(c lock.Client, owner string) string {
	if c.Host == "" {
		return "owner " + owner
	}
	return clientName(c, owner) + ", owner " + owner
}
