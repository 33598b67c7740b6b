package look

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock/driver"
)

const lsLong = `Ls lists the held locks, in a cluster those of every master. Of several servers
(--store more than once) each is listed separately. Semaphores and latches are not
listed: they cannot be distinguished from other numbers, unless permits that expire
are in use.

In PATTERN "*" stands for any text, "?" for any one character, "[a-z]" for one of
a range, "[^a-z]" for one outside a range, and "\" makes the next character literal.
Quote it, or the shell expands it. Without PATTERN all locks are listed.

The server is read in small steps; locks that are acquired or released meanwhile may
be missing. With --json each lock is one line, in no order, and is printed as it is
found; otherwise the table is sorted by name, and printed when all are known.

Exit codes:
  0   also if there is no such lock
  64  the arguments are invalid
  69  the server, or one of a cluster, cannot be reached, or refused; the locks
      of the others are printed`

const lsExample = `  leasewheel ls
  leasewheel ls 'orders:*'
  leasewheel ls --json | jq -r 'select(.ttl_ns < 5e9) | .name'`

// lsCommand is one execution of `leasewheel ls`.
type lsCommand struct {
	lookup
	found atomic.Int64
}

// NewListCommand makes leasewheel ls.
func NewListCommand() *cobra.Command {
	l := &lsCommand{}
	cmd := &cobra.Command{
		Use:     "ls [flags] [PATTERN]",
		Short:   "List the locks that are held, and by whom",
		Long:    lsLong,
		Example: lsExample,
		RunE:    l.run,

		DisableFlagsInUseLine: true,
	}
	l.register(cmd, "print each lock as a line of JSON")
	cmd.ValidArgsFunction = l.completeNames(1)
	return cmd
}

func (l *lsCommand) run(cmd *cobra.Command, args []string) error {
	pattern, err := connect.Pattern(cmd, args)
	if err != nil {
		return err
	}
	if err := l.open(cmd); err != nil {
		return err
	}
	defer l.close()
	progress := func() {}
	if !l.json || !terminal.Is(os.Stdout) { // lines that scroll by are progress enough
		m := terminal.StartMeter(os.Stderr, func() string { return output.Grouped(l.found.Load()) + " locks" })
		progress = m.Stop
	}
	write := l.writeTable
	if l.json {
		write = l.writeLines
	}
	failure, err := write(cmd, pattern, progress)
	if err != nil {
		return exit.Errorf(exit.Internal, "writing the list: %w", err)
	}
	return failure
}

// each calls f for every lock of every server, and returns the first failure of a server.
func (l *lsCommand) each(cmd *cobra.Command, pattern string, f func(server string, info driver.Info) error) (failure, err error) {
	for _, v := range l.views {
		var first error
		for info, err := range v.locker.List(cmd.Context(), pattern) {
			if err != nil {
				first = cmp.Or(first, err)
				continue
			}
			l.found.Add(1)
			if err := f(v.label, info); err != nil {
				return failure, err
			}
		}
		if failure == nil && first != nil { // which may take a while, so not between two locks
			failure = v.failed(cmd, first)
		}
	}
	return failure, nil
}

// writeLines prints each lock when it is found, and stores none.
func (l *lsCommand) writeLines(cmd *cobra.Command, pattern string, progress func()) (failure, err error) {
	defer progress()
	return l.each(cmd, pattern, func(server string, info driver.Info) error {
		return output.WriteEscaped(cmd.OutOrStdout(), reportOf(server, &info), "")
	})
}

// writeTable prints all locks in the order of their names.
func (l *lsCommand) writeTable(cmd *cobra.Command, pattern string, progress func()) (failure, err error) {
	var rows []watchedLock
	now := time.Now()
	failure, _ = l.each(cmd, pattern, func(server string, info driver.Info) error {
		rows = append(rows, watchedLock{server, &info, now})
		return nil
	})
	progress()
	if len(rows) == 0 {
		return failure, nil
	}
	slices.SortStableFunc(rows, func(a, b watchedLock) int { return cmp.Compare(a.info.Name, b.info.Name) })
	return failure, tableOf(rows, sinceThen).Write(cmd.OutOrStdout())
}

// tableOf returns the table of locks, with their servers if there are several. age writes how long
// a lock is held.
func tableOf(rows []watchedLock, age func(since, now time.Time) string) output.Table {
	table := output.Table{{"NAME", "KIND", "HOLDER", "HELD", "TTL", "WAITERS", "SERVER"}}
	for _, row := range rows {
		info, first := row.info, &row.info.Holders[0]
		holder, held, ttl := output.Client(first.Client, first.Owner), "-", "endless"
		if more := info.HolderCount - 1; more > 0 {
			holder += fmt.Sprintf(" +%s", output.Grouped(more))
		}
		if !first.Since.IsZero() {
			held = age(first.Since, row.at)
		}
		if info.TTL > 0 {
			ttl = output.Round(info.TTL).String()
		}
		table.Add(output.Quoted(info.Name), kindName(info), holder, held, ttl, output.Grouped(info.WaiterCount), row.server)
	}
	if len(rows) == 0 || rows[0].server == "" {
		for i, row := range table {
			table[i] = row[:len(row)-1]
		}
	}
	return table
}
