package main

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/lock"
)

// lookup is the access of ls, inspect and unlock to the locks. Each of several servers is
// read separately, so that users see where they disagree.
type lookup struct {
	flags   serverFlags
	stored  storeFlags
	json    bool
	servers nodes
	views   []view
}

// view reads the locks of one server.
type view struct {
	server *server
	locker *lock.Locker
	// label distinguishes the server from others; it is empty if there is one.
	label string
}

func (l *lookup) register(cmd *cobra.Command, jsonUsage string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&l.json, "json", false, jsonUsage)
	l.flags.register(flags)
	l.stored.register(flags)
}

// open connects to the servers that the flags name. It sends no request yet.
func (l *lookup) open(cmd *cobra.Command) (err error) {
	config, err := l.stored.config(slog.New(slog.DiscardHandler))
	if err != nil {
		return usageError(cmd, err)
	}
	l.servers, err = l.flags.openNodes(os.Getenv(redisURLVariable), config)
	if err != nil {
		return usageError(cmd, err)
	}
	for _, server := range l.servers {
		locker, err := lock.New(server.store, lock.Config{RequestTimeout: requestTimeout})
		if err != nil {
			l.close()
			return err
		}
		v := view{server: server, locker: locker}
		if len(l.servers) > 1 {
			v.label = server.address
		}
		l.views = append(l.views, v)
	}
	return nil
}

// close ends what open began. There is no lock to release.
func (l *lookup) close() {
	for _, v := range l.views {
		_ = v.locker.Close()
	}
	_ = l.servers.Close()
}

// sight is one server's answer about a lock.
type sight struct {
	view
	lock.Info
	err error
}

// look calls ask for all servers at once, and returns the answers in their order.
func (l *lookup) look(ask func(v *view) (lock.Info, error)) []sight {
	sights := make([]sight, len(l.views))
	var asked sync.WaitGroup
	for i, v := range l.views {
		asked.Go(func() {
			info, err := ask(&v)
			sights[i] = sight{v, info, err}
		})
	}
	asked.Wait()
	return sights
}

// failed returns the error and the exit code for a server that did not answer.
func (v *view) failed(cmd *cobra.Command, err error) error {
	var name *lock.NameError
	if errors.As(err, &name) || errors.Is(err, lock.ErrUnsupported) {
		return usageError(cmd, err)
	}
	return unavailable(cmd.Context(), v.server, err)
}

// failure returns the first of the servers' failures.
func failure(cmd *cobra.Command, sights []sight) (first error) {
	for _, s := range sights {
		if s.err != nil {
			first = cmp.Or(first, s.failed(cmd, s.err))
		}
	}
	return first
}
