// Package look shows the locks on servers, and takes them from their holders: leasewheel ls,
// watch, inspect and unlock.
package look

import (
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// lookup is the access of ls, inspect and unlock to the locks. Each of several servers is
// read separately, so that users see where they disagree.
type lookup struct {
	flags   connect.Flags
	stored  connect.StoreFlags
	json    bool
	servers connect.Servers
	views   []view
}

// view reads the locks of one server.
type view struct {
	server *connect.Server
	locker *lock.Locker
	// label distinguishes the server from others; it is empty if there is one.
	label string
}

func (l *lookup) register(cmd *cobra.Command, jsonUsage string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&l.json, "json", false, jsonUsage)
	l.flags.RegisterFolder(flags, false)
	l.flags.Register(flags)
	l.stored.Register(flags)
}

// open connects to the servers that the flags name. It sends no request yet.
func (l *lookup) open(cmd *cobra.Command) (err error) {
	config, err := l.stored.Config()
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	l.servers, err = l.flags.OpenNodes(os.Getenv(connect.URLVariable), config)
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	l.flags.ReportFolder(cmd.ErrOrStderr(), l.servers)
	for _, server := range l.servers {
		locker, err := lock.New(server.Locks(), lock.Config{RequestTimeout: connect.RequestTimeout})
		if err != nil {
			l.close()
			return err
		}
		v := view{server: server, locker: locker}
		if len(l.servers) > 1 {
			v.label = server.Address
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
	driver.Info
	err error
}

// look calls ask for all servers at once, and returns the answers in their order.
func (l *lookup) look(ask func(v *view) (driver.Info, error)) []sight {
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
		return exit.UsageError(cmd, err)
	}
	return connect.Unavailable(cmd.Context(), v.server, err)
}

// failure returns the first of the servers' failures.
func failure(cmd *cobra.Command, sights []sight) error {
	for _, s := range sights {
		if s.err != nil {
			return s.failed(cmd, s.err)
		}
	}
	return nil
}

// completeNames completes up to most arguments by the names of held locks; with 0, any
// number.
func (l *lookup) completeNames(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := connect.HeldNames(cmd.Context(), &l.flags, &l.stored, begun)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
	}
}
