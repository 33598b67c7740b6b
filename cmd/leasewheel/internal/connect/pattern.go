package connect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// GlobLiteral returns the pattern that matches only text.
func GlobLiteral(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(text)
}

// Pattern returns the PATTERN among the arguments, or that of all names.
func Pattern(cmd *cobra.Command, args []string) (string, error) {
	switch len(args) {
	case 0:
		return "*", nil
	case 1:
		return args[0], nil
	}
	return "", exit.UsageError(cmd, fmt.Errorf("%s takes one PATTERN, got %d; quote it, or the shell replaces it by file names", cmd.Name(), len(args)))
}
