package reportfile

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// RepeatCommand is the command line that repeats the measurement, without its output
// files.
func RepeatCommand(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "json", "csv", "hgrm", "gobench", "html", "svg":
		case "precise":
			line = append(line, "--precise")
		case "tick":
			line = append(line, "--tick "+strings.Trim(f.Value.String(), "[]"))
		default:
			line = append(line, "--"+f.Name+" "+f.Value.String())
		}
	})
	return strings.Join(line, " ")
}
