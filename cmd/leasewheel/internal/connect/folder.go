package connect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/filestore"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// DefaultFolder returns the folder of locks if no server is named: the same for every process of
// the user, whether it was started by cron, a service or a login, which have other runtime
// directories and TMPDIRs. A service whose /tmp is its own is refused it.
var DefaultFolder = func() (string, error) {
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && privateTmp(string(mounts)) {
		return "", errPrivateTmp
	}
	return fmt.Sprintf("/tmp/leasewheel-%d", os.Geteuid()), nil
}

// folderFlags name the folder of locks between the processes of one machine.
type folderFlags struct {
	path     string
	all      *pflag.FlagSet // nil for a command whose locks need a server
	creates  bool           // a folder that is named is created
	existing bool           // no folder is created
}

// RegisterFolder registers the flag of commands whose locks need no server. One that only reads
// creates no folder that is named: in place of a mistyped one it would show that no lock is held.
func (s *Flags) RegisterFolder(flags *pflag.FlagSet, creates bool) {
	s.folder.all, s.folder.creates = flags, creates
	flags.StringVar(&s.folder.path, "dir", "", "lock among this user's processes on this machine, in this `folder`, with no server (default without one: /tmp/leasewheel-UID)")
}

// openFolder returns the locks in a folder. What belongs to a server is refused: its URL may have
// been left out by mistake.
func (s *Flags) openFolder(urls []string, c redisstore.Config) (Servers, error) {
	_, emptyVariable := os.LookupEnv(URLVariable)
	given, shared := s.folder.all.Changed, false
	s.folder.all.Visit(func(f *pflag.Flag) { shared = shared || Shared(f) })
	named := given("dir")
	switch settings := c.Prefix != "" || c.Format != redisstore.FormatRedisson || c.PubSub != redisstore.PubSubAuto; {
	case named && (given("store") || given("store-file")):
		return nil, errors.New("--dir excludes --store and --store-file")
	case named && (shared || settings && len(urls) == 0):
		return nil, errors.New("--dir has no server: --format, --prefix, --pubsub, their variables, and the flags --store-… do not belong to it")
	case !named && (shared || settings || emptyVariable):
		return nil, noServer()
	}
	path := s.folder.path
	if !named {
		var err error
		if path, err = DefaultFolder(); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(path); err != nil && (s.folder.existing || named && !s.folder.creates) {
		return nil, err
	}
	store, err := filestore.New(path)
	switch {
	case errors.Is(err, driver.ErrUnsupported) && !named:
		return nil, noServer()
	case err != nil:
		return nil, unusable(err)
	}
	return Servers{{files: store, Address: path}}, nil
}

// errPrivateTmp is the error without a server in a service whose /tmp no other process has: its locks
// would exclude none.
var errPrivateTmp = errors.New("no server: /tmp is this service's own (PrivateTmp= of systemd), and locks in it exclude no other process; " +
	"name a folder with --dir, such as one in /var/lib, or a server with --store")

// privateTmp reports whether systemd has mounted a folder of one service on /tmp, by the text of
// /proc/self/mountinfo.
func privateTmp(mounts string) (private bool) {
	for line := range strings.Lines(mounts) {
		// The fields are in proc(5): the fourth is the folder in its file system, the fifth where it is mounted.
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "/tmp" {
			private = strings.Contains(fields[3], "/systemd-private-")
		}
	}
	return private
}

// unusable returns the error of a folder with the exit code of a server that is out of reach, if it is
// not the arguments but the state of the host that is to be corrected.
func unusable(err error) error {
	for _, state := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS, driver.ErrUnavailable,
	} {
		if errors.Is(err, state) {
			return &exit.Error{Code: exit.Unavailable, Err: err}
		}
	}
	return err
}

// ReportFolder prints where the locks are if the command line does not name a server or a folder.
func (s *Flags) ReportFolder(stderr io.Writer, n Servers) {
	if s.folder.path == "" && n[0].files != nil {
		fmt.Fprintf(stderr, "leasewheel: no server is named: locks are in %s, for this user's processes on this machine (--dir names it)\n", output.Quoted(n[0].Address))
	}
}

// Presence returns a file that keeps what this process has locked from being free at once when
// it ends, for a process that goes on; nil for locks on a server.
func (n Servers) Presence() (*os.File, error) {
	if n[0].files == nil {
		return nil, nil
	}
	return n[0].files.Presence()
}
