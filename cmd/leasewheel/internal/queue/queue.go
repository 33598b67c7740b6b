// Package queue is leasewheel queue: it looks into delay queues, and changes them.
package queue

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

const long = `Queue looks into delay queues, and changes them. NAME is the name that the program
gives to delayqueue.New. A queue need not exist: one without messages is empty.

All times are by the server's clock. Payloads and errors were chosen by others: what a
terminal might act upon is escaped, and only the first bytes of a payload are printed.` + exit.PrintedCodes

// NewCommand makes leasewheel queue.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue COMMAND [flags] NAME",
		Short: "Look into delay queues, and change them",
		Long:  long,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return exit.UsageError(cmd, fmt.Errorf("unknown command %q for queue; it has stats, ls, dead, put, revive and cancel", args[0]))
		},
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(
		newStatsCommand(),
		newListCommand(),
		newDeadCommand(),
		newPutCommand(),
		newReviveCommand(),
		newCancelCommand(),
	)
	for _, sub := range cmd.Commands() {
		sub.ValidArgsFunction = cobra.NoFileCompletions
	}
	return cmd
}

// messageReport is a message in JSON. docs/queue-message.schema.json describes it.
type messageReport struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Put      *time.Time `json:"put,omitempty"`
	Due      *time.Time `json:"due,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Died     *time.Time `json:"died,omitempty"`
	Attempts int        `json:"attempts"`
	Error    string     `json:"error,omitempty"`
	Size     int        `json:"payload_bytes"`
	Payload  *string    `json:"payload,omitempty"`
	Binary   []byte     `json:"payload_base64,omitempty"`
}

func messageReportOf(info *delayqueue.Info) messageReport {
	r := messageReport{
		ID: shortened(info.ID), State: info.State.String(), Put: output.Instant(info.Put), Due: output.Instant(info.Due),
		Until: output.Instant(info.Until), Died: output.Instant(info.Died), Attempts: info.Attempt, Error: info.LastError, Size: info.Size,
	}
	if text, ok := payloadText(info); ok {
		r.Payload = &text
	} else {
		r.Binary = info.Payload
	}
	return r
}

// shortened returns an id as it is, but one of another client to the length that the
// queue accepts.
func shortened(id string) string { return id[:min(len(id), delayqueue.MaxID)] }

// payloadText returns the first bytes of a payload as text, if it is text. A character
// that the list has cut in two is left out.
func payloadText(info *delayqueue.Info) (text string, ok bool) {
	text = string(info.Payload)
	if info.Size > len(text) {
		text = whole(text)
	}
	return text, utf8.ValidString(text)
}

// whole returns the beginning of a text without a character at its end that was cut in two.
func whole(text string) string {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) {
			return text[:len(text)-i]
		}
	}
	return text
}

// payloadCell describes a payload in a table: its first bytes, quoted unless they are
// plain.
func payloadCell(info *delayqueue.Info) string {
	if info.Size == 0 {
		return "-"
	}
	text, _ := payloadText(info)
	cell := output.Quoted(text)
	if more := info.Size - len(text); more > 0 {
		cell += "… +" + output.Grouped(int64(more))
	}
	return cell
}

// secondOf returns an instant for a table, "-" if it is unknown.
func secondOf(t time.Time) string {
	if t.UnixMilli() <= 0 {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
