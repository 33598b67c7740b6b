package root

import (
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

// describeFlags takes the marks of placeholders out of the descriptions of flags, which
// cobra offers to shells as they are.
func describeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, sub := range cmd.Commands() {
		describeFlags(sub)
	}
}

// completeFlags completes the values of all flags of cmd and of its subcommands: those of
// flagValues, files and folders by their placeholders, and nothing where a shell would suggest
// files that are none.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values, directive := flagValues[f.Name], cobra.ShellCompDirectiveNoFileComp
		switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
		case "": // it takes no value
			return
		case "file", "FILE":
			directive = cobra.ShellCompDirectiveDefault
		case "folder":
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		complete := cobra.FixedCompletions(values, directive)
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails for a flag that is registered twice
	})
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
	}
}
