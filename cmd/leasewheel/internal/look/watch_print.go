package look

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// RefreshReport is a refresh in JSON. docs/watch.schema.json describes it.
type RefreshReport struct {
	Time     time.Time       `json:"time"`
	Locks    []LockReport    `json:"locks"`
	Failures []failureReport `json:"failures"`
}

// failureReport is a server that could not be read.
type failureReport struct {
	Server string `json:"server,omitempty"` // of several
	Error  string `json:"error"`
}

// writeDocument prints a refresh as a line of JSON.
func (w *watchCommand) writeDocument(r *refresh) error {
	report := RefreshReport{Time: r.at.UTC(), Locks: []LockReport{}, Failures: []failureReport{}}
	for _, row := range r.current() {
		report.Locks = append(report.Locks, reportOf(row.server, row.info))
	}
	for _, v := range r.views {
		if v.err != nil {
			report.Failures = append(report.Failures, failureReport{v.label, output.OneLine(v.err)})
		}
	}
	return output.WriteEscaped(w.out, report, "")
}

// writeLine prints a refresh as a line for people.
func (r *refresh) writeLine(out io.Writer) error {
	var line strings.Builder
	line.WriteString(r.at.UTC().Format(time.RFC3339))
	current := r.current()
	failed := 0
	for _, v := range r.views {
		if v.err != nil {
			failed++
		}
	}
	if failed < len(r.views) {
		line.WriteString("  " + countsOf(current))
	}
	for _, v := range r.views {
		if v.err != nil {
			line.WriteString("  " + output.OneLine(v.err))
		}
	}
	_, err := fmt.Fprintln(out, line.String())
	return err
}

// countsOf returns the numbers of locks and of waiters.
func countsOf(rows []watchedLock) string {
	waiters := int64(0)
	for _, row := range rows {
		waiters += row.info.WaiterCount
	}
	return output.Counted(int64(len(rows)), "lock") + ", " + output.Counted(waiters, "waiter")
}
