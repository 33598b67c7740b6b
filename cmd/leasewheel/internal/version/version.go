// Package version is leasewheel version: what the binary was built from.
package version

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

const versionLong = `Version prints one line: the version of the module, the version of Go, the system, and
the revision of the source if the binary was built in its repository.

Exit codes:
  0   the version is printed
  64  the arguments are invalid`

// NewCommand makes leasewheel version.
func NewCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command",
		Long:  versionLong,
		Args:  exit.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return Current().Write(cmd.OutOrStdout(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// Build is what a binary was built from.
type Build struct {
	Version  string `json:"version"` // of the module; "(devel)" if it is unknown
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Revision string `json:"revision,omitempty"` // of the repository
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // the work tree differed from the revision
}

// Current returns what this binary was built from.
func Current() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info)
}

// buildOf reads the information that the go command has put into a binary.
func buildOf(info *debug.BuildInfo) Build {
	b := Build{
		Version:  cmp.Or(info.Main.Version, "(devel)"),
		Go:       info.GoVersion,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String returns the build in one line.
func (b Build) String() string {
	words := []string{"leasewheel", b.Version, b.Go, b.Platform}
	if b.Revision != "" {
		words = append(words, "revision", b.Revision)
	}
	if b.Modified {
		words = append(words, "modified")
	}
	return strings.Join(words, " ")
}

// Write prints the build as a line, or as JSON.
func (b Build) Write(to io.Writer, asJSON bool) (err error) {
	if asJSON {
		err = output.WriteEscaped(to, b, "  ")
	} else {
		_, err = fmt.Fprintln(to, b)
	}
	if err != nil {
		return exit.Errorf(exit.Internal, "writing the version: %w", err)
	}
	return nil
}

// Name names the build in the reports of measurements, which also have the machine.
func Name() string {
	b := Current()
	return "leasewheel " + b.Version + " " + b.Go
}
