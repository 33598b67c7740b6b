package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// lookup is how the commands that look into locks reach them.
type lookup struct {
	flags   serverFlags
	json    bool
	server  *server
	locker  *lock.Locker
	address string
}

func (l *lookup) register(cmd *cobra.Command, jsonUsage string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&l.json, "json", false, jsonUsage)
	l.flags.register(flags)
}

// open connects to the server that the flags name. Nothing is sent yet.
func (l *lookup) open(cmd *cobra.Command) error {
	server, err := l.flags.open(os.Getenv(redisURLVariable), redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return usageError(cmd, err)
	}
	locker, err := lock.New(server.store, lock.Config{})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	l.server, l.locker, l.address = server, locker, server.address
	return nil
}

// close ends what open began. Nothing was taken that could be left behind.
func (l *lookup) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.locker.Close(ctx)
	_ = l.server.Close()
}

// failed translates why the server could not be asked into an exit code.
func (l *lookup) failed(cmd *cobra.Command, err error) error {
	var (
		name    *lock.NameError
		pattern *lock.PatternError
	)
	if errors.As(err, &name) || errors.As(err, &pattern) {
		return usageError(cmd, err)
	}
	return exitf(exitUnavailable, "server %s: %w", l.address, err)
}
