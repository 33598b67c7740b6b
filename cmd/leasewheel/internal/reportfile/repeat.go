package reportfile

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// RepeatCommand is the command line that repeats the measurement, without its output
// files, and without how to connect to the server: others read the report, and a URL may have
// a password.
func RepeatCommand(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "json", "csv", "hgrm", "gobench", "html", "svg":
		case "store", "store-file":
			line = append(line, "--store URL")
		case "precise":
			line = append(line, "--precise")
		case "tick":
			line = append(line, "--tick "+strings.Trim(f.Value.String(), "[]"))
		default:
			if strings.HasPrefix(f.Name, "store-") {
				return
			}
			line = append(line, "--"+f.Name+" "+f.Value.String())
		}
	})
	return strings.Join(line, " ")
}
