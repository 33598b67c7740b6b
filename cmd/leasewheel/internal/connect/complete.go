package connect

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
)

// maxCompletions bounds the completion of a lock's name.
const maxCompletions = 200

// HeldNames returns the names of held locks that begin with begun, as far as the servers
// list them in time. Names that a shell or a terminal might act upon are left out.
func HeldNames(ctx context.Context, flags *Flags, stored *StoreFlags, begun string) (names []string) {
	ctx, cancel := context.WithTimeout(cmp.Or(ctx, context.Background()), CompletionTimeout)
	defer cancel()
	if flags.PasswordCommand != "" {
		return nil // a key press must start no command
	}
	config, err := stored.Config()
	if err != nil {
		return nil // the command itself reports it
	}
	// Cobra parses the flags of a command that is completed twice.
	slices.Sort(flags.URLs)
	flags.URLs = slices.Compact(flags.URLs)
	flags.folder.existing = true
	servers, err := flags.OpenNodes(os.Getenv(URLVariable), config)
	if err != nil {
		return nil
	}
	defer servers.Close()
	for _, server := range servers {
		locker, err := lock.New(server.Locks(), lock.Config{RequestTimeout: RequestTimeout})
		if err != nil {
			return nil
		}
		for info, err := range locker.List(ctx, GlobLiteral(begun)+"*") {
			if err != nil || len(names) >= maxCompletions {
				break
			}
			if typable(info.Name) {
				names = append(names, info.Name)
			}
		}
		_ = locker.Close()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// typable reports whether a name, typed without quotes, is an argument that is that name.
func typable(name string) bool {
	expands := strings.Contains(name, "{") && (strings.Contains(name, ",") || strings.Contains(name, "..")) // {user:7}:cart does not
	return output.Quoted(name) == name && !strings.ContainsAny(name, " $`!;&|<>()[]*?~^#\"'\\") && !strings.ContainsAny(name[:1], "-=") && !expands
}
