package root

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
)

// The completed values of a flag are those that its help names.
func TestFlagValuesAreInTheHelp(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range flagValues[f.Name] {
				used[f.Name] = true
				if f.Name != "kind" || value != "" {
					assert.Contains(t, f.Usage, value, "%s --%s", cmd.CommandPath(), f.Name)
				}
			}
		})
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visit(sub)
			}
		}
	}
	visit(NewCommand("leasewheel"))
	for name := range flagValues {
		assert.True(t, used[name], "--%s is no flag", name)
	}
}
