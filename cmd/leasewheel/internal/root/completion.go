package root

import (
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

// completeFlag completes the value of a flag: those of flagValues, files and folders by its
// placeholder, and nothing where a shell would suggest files that are none.
func completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	values, directive := flagValues[f.Name], cobra.ShellCompDirectiveNoFileComp
	switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
	case "": // it takes no value
		return
	case "file", "FILE":
		directive = cobra.ShellCompDirectiveDefault
	case "folder":
		directive = cobra.ShellCompDirectiveFilterDirs
	}
	_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, directive)) // fails for a flag that is registered twice
}
