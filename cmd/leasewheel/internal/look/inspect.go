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

const inspectLong = `Inspect shows who holds the lock NAME: the process, its host, since when and how
often, the remaining time of its lease, the fencing token, and the waiters in the
queue of a fair lock or of a mutex. It does not affect the lock or its waiters.

A semaphore or a latch is a number whose meaning the server does not know: name the
kind of NAME with --kind. Then inspect shows how many permits are available, which
are in use if they expire, the remaining count of the latch, and how many clients
wait.

Of several servers (--store more than once) each is shown separately.

Exit codes:
  0   the name is taken: by a lock, or by another value
  1   the lock is free; the semaphore has no permits yet; the latch is open
  64  the arguments are invalid
  69  the server cannot be reached, or refused`

const inspectExample = `  leasewheel inspect orders:42
  leasewheel inspect --json orders:42 | jq -r '.holders[].client.host'
  leasewheel inspect --kind semaphore downloads`

// inspectCommand is one execution of `leasewheel inspect`.
type inspectCommand struct {
	lookup
	kind string
}

// NewInspectCommand makes leasewheel inspect.
func NewInspectCommand() *cobra.Command {
	i := &inspectCommand{}
	cmd := &cobra.Command{
		Use:     "inspect [flags] NAME",
		Short:   "Show who holds a lock",
		Long:    inspectLong,
		Example: inspectExample,
		RunE:    i.run,

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&i.kind, "kind", "", "the kind of NAME: semaphore, permits (a semaphore whose permits expire) or latch")
	i.register(cmd, "print JSON")
	cmd.ValidArgsFunction = i.completeNames(1)
	return cmd
}

// as returns the kind by which NAME is inspected: that of the flag, which must be one that
// the data does not show.
func (i *inspectCommand) as() (kind driver.Kind, ok bool) {
	if i.kind == "" {
		return driver.KindMutex, true
	}
	for _, kind := range []driver.Kind{driver.KindSemaphore, driver.KindPermit, driver.KindLatch} {
		if kind.Word() == i.kind {
			return kind, true
		}
	}
	return 0, false
}

func (i *inspectCommand) run(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.UsageError(cmd, errors.New("inspect takes the NAME of one lock"))
	}
	if err := i.stored.ValidateNames(args[0]); err != nil {
		return exit.UsageError(cmd, err)
	}
	kind, ok := i.as()
	if !ok {
		return exit.UsageError(cmd, fmt.Errorf("--kind %q: accepted are semaphore, permits and latch; the kinds of other locks are detected", i.kind))
	}
	if err := i.open(cmd); err != nil {
		return err
	}
	defer i.close()
	sights := i.look(func(v *view) (driver.Info, error) { return v.locker.Inspect(cmd.Context(), args[0], kind) })
	taken := false
	for _, s := range sights {
		if s.err != nil {
			continue
		}
		taken = taken || s.Held() || s.Counted || s.Foreign != ""
		if err := i.print(cmd.OutOrStdout(), &s); err != nil {
			return exit.Errorf(exit.Internal, "writing the report: %w", err)
		}
	}
	if err := failure(cmd, sights); err != nil {
		return err
	}
	if !taken {
		return &exit.Error{Code: exit.NotHeld}
	}
	return nil
}

func (i *inspectCommand) print(w io.Writer, s *sight) error {
	if i.json {
		return output.WriteEscaped(w, reportOf(s.label, &s.Info), "  ")
	}
	return writeInfo(w, s.label, &s.Info, time.Now())
}

// writeInfo describes a lock for people, and names its server if there are several.
func writeInfo(w io.Writer, server string, info *driver.Info, now time.Time) error {
	var table output.Table
	fact := func(what, format string, args ...any) { table.Add(what, fmt.Sprintf(format, args...)) }
	if server != "" {
		fact("server", "%s", server)
	}
	fact("lock", "%s", output.Quoted(info.Name))
	switch {
	case info.Foreign != "" && info.Counted:
		fact("taken by", "the number %d, which may be that of a semaphore or a latch; use --kind", info.Count)
	case info.Foreign != "":
		fact("taken by", "a %s, which is not a lock of this format", output.Quoted(info.Foreign))
	case info.Held() || info.Counted:
		fact("kind", "%s", kindName(info))
	case info.Kind == driver.KindSemaphore || info.Kind == driver.KindPermit:
		fact("available", "no number of permits was set")
	case info.Kind == driver.KindLatch:
		fact("count", "0, it is open")
	default:
		fact("holder", "none")
	}
	switch {
	case info.Foreign == "" && info.Counted && info.Kind == driver.KindLatch:
		fact("count", "%s", output.Grouped(info.Count))
	case info.Foreign == "" && info.Counted:
		fact("available", "%s", output.Grouped(info.Count))
	}
	if info.Foreign == "" && info.Counted && info.Kind == driver.KindPermit {
		fact("in use", "%s", output.Grouped(info.HolderCount))
	}
	switch {
	case info.TTL > 0:
		fact("ends", "in %v, unless renewed", output.Round(info.TTL))
	case info.Held() || info.Foreign != "":
		fact("ends", "never by itself")
	}
	if info.Token != 0 {
		fact("token", "%d", info.Token)
	}
	for _, h := range info.Holders {
		text := holderText(&h, now)
		if info.HolderCount > 1 && h.TTL > 0 {
			text += fmt.Sprintf(", ends in %v", output.Round(h.TTL))
		}
		fact("holder", "%s", text)
	}
	if more := info.HolderCount - int64(len(info.Holders)); more > 0 {
		fact("", "and %s more", output.Grouped(more))
	}
	for _, waiter := range info.Waiters {
		fact("waiter", "%s, %s", ownerText(waiter.Client, waiter.Owner), placeText(&waiter, now))
	}
	switch more := info.WaiterCount - int64(len(info.Waiters)); {
	case more > 0 && len(info.Waiters) > 0:
		fact("", "and %s more", output.Grouped(more))
	case more > 0:
		fact("waiters", "%s", output.Grouped(more))
	}
	return table.Write(w)
}

// placeText describes a waiter's place in the queue.
func placeText(w *driver.Waiter, now time.Time) string {
	switch {
	case !w.Since.IsZero() && w.TTL > 0:
		return fmt.Sprintf("waiting for %s", sinceThen(w.Since, now))
	case !w.Since.IsZero():
		return fmt.Sprintf("waiting for %s, no longer subscribed", sinceThen(w.Since, now))
	case w.TTL > 0:
		return fmt.Sprintf("place kept for %v", output.Round(w.TTL))
	}
	return "its place has expired"
}

// holderText describes a holder.
func holderText(h *driver.Holder, now time.Time) string {
	text := ownerText(h.Client, h.Owner)
	if h.Write {
		text += ", writing"
	}
	if h.Holds > 1 {
		text += fmt.Sprintf(", held %s times", output.Grouped(h.Holds))
	}
	if !h.Since.IsZero() {
		text += fmt.Sprintf(", for %s since %s", sinceThen(h.Since, now), h.Since.UTC().Format(time.RFC3339))
	}
	return text
}

// ownerText names an owner: its process, if known, and its id at the server.
func ownerText(c driver.Client, owner string) string {
	if c.Host == "" {
		return "owner " + output.Quoted(owner)
	}
	return output.Client(c, owner) + ", owner " + output.Quoted(owner)
}
