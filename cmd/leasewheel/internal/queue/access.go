package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

// access is the access of one command to a queue.
type access struct {
	flags  connect.Flags
	stored connect.StoreFlags
	json   bool
	server *connect.Server
	queue  *delayqueue.Queue
}

func (a *access) register(cmd *cobra.Command, jsonUsage string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&a.json, "json", false, jsonUsage)
	a.flags.Register(flags)
	a.stored.RegisterPubSub(flags)
}

// takeTexts has the command take texts that others chose after NAME: none of them is a flag, whatever
// it begins with. "--" may be between, as of scripts that stop the flags so.
func takeTexts(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) {
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 && args[1] == "--" {
			args = slices.Delete(args, 1, 2)
		}
		return run(cmd, args)
	}
}

// open connects to the queue. It sends no request yet.
func (a *access) open(cmd *cobra.Command, name string, c delayqueue.Config) error {
	config, err := a.stored.Config()
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	config.Prefix = "" // that of locks
	a.server, err = a.flags.Open(os.Getenv(connect.URLVariable), config)
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	c.RequestTimeout = connect.RequestTimeout
	c.RetryFor = max(delayqueue.DefaultRetryFor, connect.RequestTimeout)
	a.queue, err = delayqueue.New(a.server.Store, name, c)
	if err != nil {
		a.close()
		return exit.UsageError(cmd, err)
	}
	return nil
}

func (a *access) close() {
	if a.queue != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.queue.Shutdown(ctx)
	}
	_ = a.server.Close()
}

// failed returns the error and the exit code for a request that failed.
func (a *access) failed(cmd *cobra.Command, err error) error {
	if errors.Is(err, delayqueue.ErrInvalid) {
		return exit.UsageError(cmd, err)
	}
	return connect.Unavailable(cmd.Context(), a.server, err)
}

// nameOf returns the NAME of a command that takes nothing else.
func nameOf(cmd *cobra.Command, args []string) (string, error) {
	if len(args) != 1 {
		return "", exit.UsageError(cmd, fmt.Errorf("%s takes the NAME of one queue", cmd.CommandPath()))
	}
	return args[0], nil
}
