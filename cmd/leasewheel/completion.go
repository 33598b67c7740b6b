package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// maxCompletions bounds the completion of a lock's name.
const maxCompletions = 200

// flagValues are the accepted values of flags that have a few.
var flagValues = map[string][]string{
	"format":  {redisstore.FormatRedisson.String(), redisstore.FormatPlain.String()},
	"pubsub":  {"auto", "on", "off", "both"},
	"kind":    {kindNames[lock.KindSemaphore], kindNames[lock.KindPermit], kindNames[lock.KindLatch]},
	"on-lost": {"term", "kill", "ignore"},
	"start":   {"single", "cluster"},
	"state":   {delayqueue.Ready.String(), delayqueue.Delayed.String(), delayqueue.Leased.String(), delayqueue.Dead.String()},
	"mode":    {bench.OneShot.String(), bench.Periodic.String(), bench.Rearmed.String()},
	"load":    {bench.Idle.String(), bench.Busy.String(), bench.GC.String()},
}

// fileFlags are the flags whose values are files.
var fileFlags = []string{"redis-file", "redis-ca", "redis-cert", "redis-key", "redis-password-file", "redis-sentinel-password-file", "password-file", "payload-file", "csv", "hgrm", "gobench", "html", "svg"}

// completeFlags completes the values of all flags of cmd and of its subcommands: those of
// flagValues, files, and nothing where a shell would suggest files that are none.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch values, listed := flagValues[f.Name]; {
		case f.NoOptDefVal != "", slices.Contains(fileFlags, f.Name):
			return
		case listed:
			complete = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails for a flag that is registered twice
	})
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
	}
}

// completeNames completes up to most arguments by the names of held locks; with 0, any
// number.
func (l *lookup) completeNames(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := heldNames(cmd.Context(), &l.flags, &l.stored, begun)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// heldNames returns the names of held locks that begin with begun, as far as the servers
// list them in time. Names that a shell or a terminal might act upon are left out.
func heldNames(ctx context.Context, flags *serverFlags, stored *storeFlags, begun string) (names []string) {
	ctx, cancel := context.WithTimeout(cmp.Or(ctx, context.Background()), completionTimeout)
	defer cancel()
	if flags.PasswordCommand != "" {
		return nil // a key press must start no command
	}
	config, err := stored.config(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil // the command itself reports it
	}
	// Cobra parses the flags of a command that is completed twice.
	slices.Sort(flags.urls)
	flags.urls = slices.Compact(flags.urls)
	servers, err := flags.openNodes(os.Getenv(redisURLVariable), config)
	if err != nil {
		return nil
	}
	defer servers.Close()
	for _, server := range servers {
		locker, err := lock.New(server.store, lock.Config{RequestTimeout: requestTimeout})
		if err != nil {
			return nil
		}
		for info, err := range locker.List(ctx, globLiteral(begun)+"*") {
			if err != nil || len(names) >= maxCompletions {
				break
			}
			if quoted(info.Name) == info.Name && !strings.ContainsAny(info.Name, " $`!;&|<>()*?~\"'\\") {
				names = append(names, info.Name)
			}
		}
		_ = locker.Close()
	}
	slices.Sort(names)
	return slices.Compact(names)
}
