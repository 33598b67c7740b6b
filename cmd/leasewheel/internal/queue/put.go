package queue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

const putLong = `Put puts a message into the queue NAME, due at once, after --delay, or at --due by the
server's clock, and prints its id. PAYLOAD is the argument, or the contents of
--payload-file; arguments are visible in the process list. A message with an --id needs
no payload. Flags precede NAME: a PAYLOAD may begin with "-".

Put with an --id may be repeated: the queue has one message of an id at a time, and a
message that it has already is left unchanged.

Exit codes:
  0   the message was put
  1   the queue has a message of this id already
  64  the arguments are invalid; nothing was done
  69  the server cannot be reached, or refused; it may have put the message`

const putExample = `  leasewheel queue put --id 'invoice 7' --delay 14d mails '{"to": "ada"}'
  leasewheel queue put --due 2026-12-24T18:00:00Z --payload-file card.json mails
  date | leasewheel queue put --payload-file - mails`

// maxPayload is the largest payload that delayqueue.Config.MaxPayload accepts.
const maxPayload = 64 << 20

// putCommand is one execution of `leasewheel queue put`.
type putCommand struct {
	access
	id    string
	delay duration.Flag
	due   string
	file  string
}

func newPutCommand() *cobra.Command {
	p := &putCommand{}
	cmd := &cobra.Command{
		Use:     "put [flags] NAME [PAYLOAD]",
		Short:   "Put a message into a queue",
		Long:    putLong,
		Example: putExample,

		DisableFlagsInUseLine: true,
	}
	takeTexts(cmd, p.run)
	flags := cmd.Flags()
	flags.StringVar(&p.id, "id", "", "`id` of the message, which the queue has once (default: a random one)")
	flags.Var(&p.delay, "delay", "how long after now the message is due (default: at once)")
	flags.Lookup("delay").DefValue = ""
	flags.StringVar(&p.due, "due", "", "`time` at which the message is due, such as 2026-12-24T18:00:00Z")
	flags.StringVar(&p.file, "payload-file", "", "read the payload from this `file`, or from standard input if it is -")
	p.register(cmd, "print JSON")
	return cmd
}

func (p *putCommand) run(cmd *cobra.Command, args []string) error {
	m, err := p.message(cmd, args)
	if err != nil {
		return err
	}
	if err := p.open(cmd, args[0], delayqueue.Config{MaxPayload: maxPayload}); err != nil {
		return err
	}
	defer p.close()
	id, err := p.queue.Put(cmd.Context(), m)
	switch {
	case errors.Is(err, delayqueue.ErrDuplicate):
		if err := p.report(cmd, id, outcomeDuplicate); err != nil {
			return err
		}
		return &exit.Error{Code: exit.NotDone}
	case err != nil:
		return p.failed(cmd, err)
	}
	return p.report(cmd, id, outcomePut)
}

// message returns the message of the arguments.
func (p *putCommand) message(cmd *cobra.Command, args []string) (m delayqueue.Message, err error) {
	switch {
	case len(args) == 0:
		return m, exit.UsageError(cmd, errors.New("the NAME of a queue is missing"))
	case len(args) > 2:
		return m, exit.UsageError(cmd, fmt.Errorf("put takes one PAYLOAD, got %d; quote it", len(args)-1))
	case len(args) == 2 && p.file != "":
		return m, exit.UsageError(cmd, errors.New("PAYLOAD and --payload-file exclude each other"))
	}
	m.ID, m.Delay = p.id, time.Duration(p.delay)
	if p.due != "" {
		if m.Due, err = time.Parse(time.RFC3339, p.due); err != nil {
			return m, exit.UsageError(cmd, fmt.Errorf("--due %q: accepted are times like 2026-12-24T18:00:00Z", p.due))
		}
	}
	if len(args) == 2 {
		m.Payload = []byte(args[1])
	}
	if p.file != "" {
		if m.Payload, err = readPayload(cmd.InOrStdin(), p.file); err != nil {
			return m, exit.UsageError(cmd, fmt.Errorf("--payload-file: %w", err))
		}
	}
	return m, nil
}

// readPayload reads a file, or standard input for "-", up to one byte more than a payload
// may have.
func readPayload(stdin io.Reader, name string) ([]byte, error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	return io.ReadAll(io.LimitReader(from, maxPayload+1))
}
