//go:build unix

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// contenderCommand is the hidden subcommand under which bench lock starts itself.
const contenderCommand = "bench-contender"

// contenderConfig configures the stores: the keys of a killed measurement expire soon.
var contenderConfig = redisstore.Config{FenceTTL: time.Minute}

// contenderSpec specifies the locks to contend for. Other processes get it on their
// standard input, where no other user can read the server's password.
type contenderSpec struct {
	Redis string `json:"redis"`
	connect.ConnectionFlags
	Fair bool `json:"fair,omitempty"`
}

func (s *measuredServer) contenderSpec(fair bool) contenderSpec {
	return contenderSpec{Redis: s.flags.URLs[0], ConnectionFlags: s.flags.ConnectionFlags, Fair: fair}
}

// way is how a measurement opens the locks, here and in other processes.
func (c contenderSpec) way() (contention.Way, error) {
	program, err := os.Executable()
	if err != nil {
		return contention.Way{}, err
	}
	spec, err := json.Marshal(c)
	return contention.Way{
		Open: func(context.Context) (contention.Locks, error) { return c.open() },
		Command: func() *exec.Cmd {
			cmd := exec.Command(program, contenderCommand)
			cmd.SysProcAttr = process.OwnGroup(0) // Ctrl-C is for us; the end of our input ends them
			return cmd
		},
		Spec: string(spec),
	}, err
}

// contenderLocks are a locker on connections of its own.
type contenderLocks struct {
	contention.Leasewheel
	server *connect.Server
}

func (c contenderSpec) open() (contention.Locks, error) {
	flags := connect.Flags{URLs: []string{c.Redis}, ConnectionFlags: c.ConnectionFlags}
	server, err := flags.Open("", contenderConfig)
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(server.Store, lock.Config{})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return contenderLocks{contention.Leasewheel{Locker: locker, Fair: c.Fair}, server}, nil
}

// Close removes the locker's keys from the server. The name under which it has announced
// itself would expire by itself, somewhat later.
func (l contenderLocks) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	err := l.Leasewheel.Close()
	swept := l.server.Client.Unlink(ctx, "leasewheel:client:{"+l.Locker.ClientID()+"}").Err()
	return errors.Join(err, swept, l.server.Close())
}

// NewContenderCommand makes the hidden command of one process of bench lock.
func NewContenderCommand() *cobra.Command {
	return &cobra.Command{
		Use:    contenderCommand,
		Short:  "One process of bench lock",
		Hidden: true,
		Args:   exit.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			err := contention.Serve(os.Stdin, os.Stdout, func(_ context.Context, spec string) (contention.Locks, error) {
				var c contenderSpec
				if err := json.Unmarshal([]byte(spec), &c); err != nil {
					return nil, err
				}
				return c.open()
			})
			if err != nil {
				return exit.Errorf(exit.Internal, "bench contender: %w", err)
			}
			return nil
		},
	}
}
