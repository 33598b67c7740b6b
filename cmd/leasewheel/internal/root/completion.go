package root

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// flagValues are the accepted values of flags that have a few.
var flagValues = map[string][]string{
	"format":  {redisstore.FormatRedisson.String(), redisstore.FormatPlain.String()},
	"pubsub":  {"auto", "on", "off", "both"},
	"kind":    {"semaphore", "permits", "latch"},
	"on-lost": {"term", "kill", "ignore"},
	"start":   {"single", "cluster"},
	"state":   {delayqueue.Ready.String(), delayqueue.Delayed.String(), delayqueue.Leased.String(), delayqueue.Dead.String()},
	"mode":    {bench.OneShot.String(), bench.Periodic.String(), bench.Rearmed.String()},
	"load":    {bench.Idle.String(), bench.Busy.String(), bench.GC.String()},
}

// fileFlags are the flags whose values are files.
var fileFlags = []string{"store-file", "store-ca", "store-cert", "store-key", "store-password-file", "store-sentinel-password-file", "password-file", "payload-file", "csv", "hgrm", "gobench", "html", "svg"}

// describeFlags takes the marks of placeholders out of the descriptions of flags, which
// cobra offers to shells as they are.
func describeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, sub := range cmd.Commands() {
		describeFlags(sub)
	}
}

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
