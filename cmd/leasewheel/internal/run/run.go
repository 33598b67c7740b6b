//go:build unix

// Package run is leasewheel run: it runs a program while it holds a lock, and ends it when the
// lock is lost.
package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// shell is of -c, and of scripts without an interpreter's line.
const shell = "/bin/sh"

// identityTimeout bounds the requests for the identities of the servers of a quorum.
const identityTimeout = 250 * time.Millisecond

const long = `Run waits for the lock NAME, runs COMMAND while it holds and renews the lock,
releases it, and exits with COMMAND's exit code.

COMMAND runs directly, without a shell, in a process group of its own; standard
input, output and error are passed to it. HUP, INT, QUIT, TERM, USR1 and USR2 are
passed on to the group. While leasewheel waits for the lock, HUP, INT, QUIT and
TERM end it.

With --hold-at-least, the lock stays taken for that time although leasewheel has exited,
so that a short job runs once on machines whose clocks differ by less. -n then exits with
75 on the others.

If the lock is lost, or cannot be renewed and is about to run out, the group gets
SIGTERM and, --grace later, SIGKILL (see --on-lost). That begins early enough for
the group to be gone before another client can acquire the lock, unless leasewheel
itself was stopped meanwhile: then it begins as soon as leasewheel continues. On
Linux, descendants that have left the group get the same signals, even if
leasewheel is killed.

During an outage of the server, run waits: with -w for that time, without it until a
signal comes. With -n it tries the server for about a second.

Without a server, on Linux, the lock is in a folder, /tmp/leasewheel-UID or --dir: among
this user's processes on this machine. If leasewheel is killed, it is free as soon as
COMMAND has been ended.

The server is named by --store, by --store-file, which keeps the password out of the
process list, or by LEASEWHEEL_STORE:
redis://[[user]:password@]host[:port][/db], rediss:// with TLS, unix:///path.
Commands of their own accept postgres:// and etcd://, too.

Several independent servers, an odd number from three up, are a quorum: a client
that has the lock on a majority of them holds it, and a minority may be down or
lost. Name each by a --store, by a line in the file, or in LEASEWHEEL_STORE separated by
spaces. They must not be replicas of each other. All clients must name the same ones.

NAME is a mutex. --read and --write take the sides of a read-write lock instead, --fair
a lock in the order of arrival, and --permits one of several permits. A mutex, a fair
lock and a writer of one name exclude each other. A semaphore needs a name of its own.
Clients in Java take the same locks with Redisson's RLock, RReadWriteLock, RFairLock and
RPermitExpirableSemaphore. A quorum, and the format plain, support only mutexes.

All clients must also use the same --format and --prefix, and in a cluster a --pubsub
that reaches each other. LEASEWHEEL_PREFIX and LEASEWHEEL_PUBSUB set the latter two for
a whole fleet.

Exit codes:
  0-255    COMMAND's own; 128+N if signal N ended it
  64       the arguments are invalid
  69       the server, or a majority of several, cannot be reached, or refused,
           or the key NAME is not a lock, or has another number of permits
  75       another owner holds the lock, or all permits are in use (-n, -w); -E
           sets another code, and with -E 0 nothing is printed, unless the
           lock is held as another kind or in another format
  76       the lock was lost while COMMAND ran, or --max-hold was over
  126      COMMAND cannot be executed
  127      COMMAND, or its interpreter, was not found
  128+N    signal N came while leasewheel waited for the lock

Environment of COMMAND:
  LEASEWHEEL_LOCK_NAME      the lock's name
  LEASEWHEEL_LOCK_FENCE     the fencing token: grows with every grant. Readers
                            that hold a lock together share one; with --permits,
                            several are in use
  LEASEWHEEL_LOCK_OWNER     the owner's id at the server
  LEASEWHEEL_LOCK_TTL       --ttl, in milliseconds
  LEASEWHEEL_LOCK_DEADLINE  with --max-hold: its end, in Unix milliseconds
  LEASEWHEEL_STORE is emptied unless --keep-store is given.`

const example = `  leasewheel run nightly -- backup --all
  leasewheel run -n -E 0 cache:warm -- ./warm.sh      # another has it: fine
  leasewheel run -w 10s --ttl 15s deploy -c 'make build && make push'
  leasewheel run --read catalog -- ./report           # with other readers
  leasewheel run --permits 3 gpu -- ./train           # three in the whole fleet
  leasewheel run -n -E 0 --hold-at-least 1m report -- ./report     # from cron
  leasewheel run --dir ~/.cache/locks -s photos -- ./index         # no server
  leasewheel run --store-file /run/secrets/redis job -- ./job
  leasewheel run --store redis://a --store redis://b --store redis://c j -- ./job`

// command is one execution of `leasewheel run`.
type command struct {
	server       connect.Flags
	stored       connect.StoreFlags
	kinds        kindFlags
	nonblock     bool
	wait         duration.Flag
	conflictCode int
	ttl          duration.Flag
	onLost       string
	grace        duration.Flag
	maxHold      duration.Flag
	holdAtLeast  duration.Flag
	shell        string
	label        string
	keepStore    bool
	verbose      bool

	stderr  io.Writer
	name    string
	argv    []string
	path    string // of the executable
	locker  *lock.Locker
	servers connect.Servers
}

// NewCommand makes leasewheel run.
func NewCommand() *cobra.Command {
	r := &command{ttl: duration.Flag(driver.DefaultTTL)}
	cmd := &cobra.Command{
		Use:     "run [flags] NAME -- COMMAND [ARG...]",
		Short:   "Run a command while holding a lock",
		Long:    long,
		Example: example,
		RunE:    r.run,

		DisableFlagsInUseLine: true,
	}
	cmd.ValidArgsFunction = r.complete
	flags := cmd.Flags()
	flags.SetInterspersed(false) // the arguments after NAME are COMMAND's
	flags.SortFlags = false
	flags.BoolVarP(&r.nonblock, "nonblock", "n", false, "do not wait if the lock is held")
	flags.VarP(&r.wait, "wait", "w", "longest wait for the lock; 0 means -n (default: for ever)")
	flags.IntVarP(&r.conflictCode, "conflict-exit-code", "E", exit.NotAcquired, "exit code if the lock was not acquired")
	r.kinds.register(flags)
	flags.Var(&r.ttl, "ttl", "time to live of the lock after its holder has died; it is renewed long before")
	flags.StringVar(&r.onLost, "on-lost", string(lossTerm), "what to do to COMMAND when the lock is lost: term, kill or ignore")
	flags.Var(&r.grace, "grace", "time between SIGTERM and SIGKILL (default: a tenth of --ttl, at most 5s)")
	flags.Var(&r.maxHold, "max-hold", "end COMMAND after it has held the lock for this time (default: no limit)")
	flags.Var(&r.holdAtLeast, "hold-at-least", "keep the lock taken for this time, even if COMMAND ends sooner")
	flags.StringVarP(&r.shell, "command", "c", "", "run this line with /bin/sh instead of COMMAND")
	flags.StringVar(&r.label, "label", "", "`TEXT` about this run that ls and inspect show (default: COMMAND's name)")
	flags.BoolVar(&r.keepStore, "keep-store", false, "leave LEASEWHEEL_STORE in COMMAND's environment")
	flags.BoolVarP(&r.verbose, "verbose", "v", false, "report progress on standard error")
	r.server.RegisterFolder(flags, true)
	r.server.Register(flags)
	r.stored.Register(flags)
	flags.Lookup("wait").DefValue, flags.Lookup("grace").DefValue, flags.Lookup("max-hold").DefValue = "", "", ""
	flags.Lookup("hold-at-least").DefValue = ""
	return cmd
}

// complete completes NAME by the names of held locks, and the rest as the shell does.
func (r *command) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return connect.HeldNames(cmd.Context(), &r.server, &r.stored, begun), cobra.ShellCompDirectiveNoFileComp
}

func (r *command) run(cmd *cobra.Command, args []string) error {
	printed := newMessages(cmd.ErrOrStderr())
	defer printed.end()
	r.stderr = printed
	policy, err := r.parse(cmd, args)
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	// A command that cannot run must not wait for the lock.
	if r.path, err = findExecutable(r.argv[0]); err != nil {
		return err
	}
	locker, closeLocker, err := r.openLocker(cmd)
	if err != nil {
		return err
	}
	signals, release := catchSignals()
	defer func() {
		closeLocker()
		release() // at last: a signal does not replace COMMAND's exit code
	}()
	lease, err := r.acquire(cmd.Context(), locker, signals)
	if err != nil {
		return err
	}
	return r.runUnder(lease, signals, policy)
}

// parse takes NAME and COMMAND from args and checks the flags with each other.
func (r *command) parse(cmd *cobra.Command, args []string) (lossPolicy, error) {
	if err := r.parseCommand(args); err != nil {
		return lossPolicy{}, err
	}
	flags := cmd.Flags()
	switch waitSet := flags.Changed("wait"); {
	case r.nonblock && waitSet && r.wait > 0:
		return lossPolicy{}, errors.New("--nonblock and --wait exclude each other")
	case waitSet && r.wait == 0:
		r.nonblock = true
	}
	if err := r.kinds.validate(flags.Changed("permits")); err != nil {
		return lossPolicy{}, err
	}
	if r.conflictCode < 0 || r.conflictCode > 255 {
		return lossPolicy{}, fmt.Errorf("--conflict-exit-code %d: accepted are 0 to 255", r.conflictCode)
	}
	if least, most := time.Duration(r.holdAtLeast), time.Duration(r.maxHold); most > 0 && least > most {
		return lossPolicy{}, fmt.Errorf("--hold-at-least %v is longer than --max-hold %v", least, most)
	}
	if r.holdAtLeast > 0 && (r.kinds.read || r.kinds.write) {
		return lossPolicy{}, errors.New("--hold-at-least is not for --read and --write: the holders of a read-write lock share one time to live")
	}
	if least := time.Duration(r.holdAtLeast); least > driver.MaxTTL {
		return lossPolicy{}, fmt.Errorf("--hold-at-least %v: accepted are up to %v", least, driver.MaxTTL)
	}
	return r.parsePolicy(flags.Changed("grace"))
}

// parseCommand takes NAME, an optional "--", and COMMAND or -c LINE from args.
func (r *command) parseCommand(args []string) error {
	if len(args) == 0 {
		return errors.New("NAME is missing")
	}
	r.name, args = args[0], args[1:]
	if err := r.stored.ValidateNames(r.name); err != nil {
		return err
	}
	dashed := len(args) > 0 && args[0] == "--"
	switch {
	case dashed:
		args = args[1:]
	case len(args) > 0 && args[0] == "-c": // flock(1) has it after NAME
		if len(args) != 2 || args[1] == "" {
			return fmt.Errorf("-c takes one LINE and nothing after it, got %q", args[1:])
		}
		r.shell, args = args[1], nil
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		return fmt.Errorf("%s: flags precede NAME, COMMAND follows --", args[0])
	}
	switch {
	case r.shell != "" && len(args) > 0:
		return errors.New("-c and COMMAND exclude each other")
	case r.shell != "":
		r.argv = []string{shell, "-c", r.shell}
	case len(args) == 0 || args[0] == "":
		return errors.New("COMMAND is missing")
	default:
		r.argv = args
	}
	return nil
}

// parsePolicy divides the lease's time. The command must get its signal while a renewal
// is still possible: a renewal is sent at a third of the TTL, and a good part of the rest
// is for repeating it.
func (r *command) parsePolicy(graceSet bool) (lossPolicy, error) {
	ttl, grace := time.Duration(r.ttl), time.Duration(r.grace)
	policy := lossPolicy{
		action: lossAction(r.onLost),
		grace:  grace,
		margin: min(100*time.Millisecond, ttl/20),
	}
	if !graceSet {
		policy.grace = min(5*time.Second, ttl/10)
	}
	switch policy.action {
	case lossTerm, lossKill, lossIgnore:
	default:
		return policy, fmt.Errorf("--on-lost %q: accepted are term, kill and ignore", r.onLost)
	}
	if ttl == 0 {
		return policy, errors.New("--ttl 0s: a lease needs time for its renewal")
	}
	if most := ttl/2 - policy.margin; policy.grace > most {
		return policy, fmt.Errorf("--grace %v is too long for --ttl %v: accepted are up to %v, so that a failed renewal can be tried again first",
			policy.grace, ttl, most.Round(time.Millisecond))
	}
	return policy, nil
}

// findExecutable finds the command as a shell does: also in the current folder, if PATH names it.
func findExecutable(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) && inPath(name) {
		err = fs.ErrPermission
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", exit.Errorf(exit.NotFound, "command %q was not found; the lock was not taken", name)
	default:
		return "", exit.Errorf(exit.CannotExec, "command %q cannot be executed: %w; the lock was not taken", name, withoutName(err))
	}
}

// isText reports whether a file may be a script: as shells judge, it has no NUL at its beginning.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var first [512]byte
	n, _ := file.Read(first[:])
	return bytes.IndexByte(first[:n], 0) < 0
}

// inPath reports whether a folder of PATH has a file of this name, which need not be executable.
func inPath(name string) bool {
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(folder string) bool {
		info, err := os.Stat(filepath.Join(cmp.Or(folder, "."), name))
		return err == nil && !info.IsDir()
	})
}

// withoutName strips the file's name that package exec repeats in its errors.
func withoutName(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err
}

// openLocker connects to the servers that the flags name. It requests no lock yet.
func (r *command) openLocker(cmd *cobra.Command) (*lock.Locker, func(), error) {
	logger := slog.New(slog.DiscardHandler)
	if r.verbose {
		logger = slog.New(slog.NewTextHandler(r.stderr, nil))
	}
	if r.label == "" {
		r.label = labelOf(r.argv[0])
	}
	r.server.Logger = logger
	config, err := r.stored.Config()
	if err != nil {
		return nil, nil, exit.UsageError(cmd, err)
	}
	servers, err := r.server.OpenNodes(os.Getenv(connect.URLVariable), config)
	if err != nil {
		return nil, nil, exit.UsageError(cmd, err)
	}
	r.server.ReportFolder(r.stderr, servers)
	soon, cancel := context.WithTimeout(cmd.Context(), identityTimeout)
	defer cancel()
	if err := servers.Independent(soon); err != nil {
		return nil, nil, exit.UsageError(cmd, errors.Join(err, servers.Close()))
	}
	store, closeStore, err := servers.Store()
	if err != nil {
		return nil, nil, exit.UsageError(cmd, errors.Join(err, servers.Close()))
	}
	r.servers = servers
	var locker *lock.Locker
	if err = store.Supports(r.kinds.kind()); err == nil {
		locker, err = lock.New(store, lock.Config{
			TTL: time.Duration(r.ttl), RequestTimeout: connect.RequestTimeout, RetryFor: connect.RequestTimeout, Label: r.label, Logger: logger,
		})
	}
	if err != nil {
		return nil, nil, exit.UsageError(cmd, errors.Join(err, closeStore(), servers.Close()))
	}
	return locker, func() {
		if err := errors.Join(locker.Close(), closeStore(), servers.Close()); err != nil {
			r.say("closing: %v", err)
		}
	}, nil
}

// labelOf returns the name of an executable, without what a label must not contain.
func labelOf(executable string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(filepath.Base(executable), "?"))
}

// acquire waits for the lock, until the flags' limit or a signal.
func (r *command) acquire(ctx context.Context, locker *lock.Locker, signals <-chan os.Signal) (*lock.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.locker = locker
	type result struct {
		lease *lock.Lease
		err   error
	}
	done := make(chan result, 1)
	begin := time.Now()
	go func() {
		lease, err := r.request(ctx, r.kinds.acquirer(locker, r.name, lock.Options{MinHold: time.Duration(r.holdAtLeast)}))
		done <- result{lease, err}
	}()

	var interrupt os.Signal
	for {
		select {
		case sig := <-signals:
			switch {
			case endsWaiting(sig):
				interrupt = sig
				cancel()
			case sig == unix.SIGTSTP:
				unix.Kill(unix.Getpid(), unix.SIGSTOP) //nolint:errcheck // then it is not suspended
			case sig != unix.SIGCONT: // which needs no action
				r.say("ignoring %v: there is no command yet", unix.SignalName(sig.(syscall.Signal)))
			}
		case got := <-done:
			switch {
			case interrupt == nil && got.err == nil:
				r.say("acquired lock %q after %v, fencing token %d", r.name, time.Since(begin).Round(time.Millisecond), got.lease.Token())
				return got.lease, nil
			case interrupt == nil:
				return nil, r.refused(ctx, got.err)
			case got.err == nil:
				r.release(got.lease, got.lease.Discard)
			}
			r.say("%v came while waiting for lock %q", interrupt, r.name)
			return nil, &exit.Error{Code: exit.Signal + int(interrupt.(syscall.Signal))}
		}
	}
}

// Pauses between two tries in an outage of the server, and the length of an outage that
// is reported.
const (
	firstOutagePause = 50 * time.Millisecond
	mostOutagePause  = time.Second
	silentOutage     = 5 * time.Second
)

// request requests the lock until the flags' limit. During an outage of the server it
// waits as for a holder, unless the failure is permanent.
func (r *command) request(ctx context.Context, acquire acquirer) (*lock.Lease, error) {
	begin, reported := time.Now(), false
	for pause := firstOutagePause; ; pause = min(2*pause, mostOutagePause) {
		lease, err := r.ask(ctx, acquire, begin)
		if err == nil || ctx.Err() != nil {
			return lease, err
		}
		err = r.foreign(ctx, r.servers.Mismatch(ctx, err))
		_, mismatched := errors.AsType[*connect.MismatchError](err)
		waited := time.Since(begin)
		if r.nonblock || mismatched || connect.Untrusted(err) || !errors.Is(err, lock.ErrUnavailable) ||
			r.wait > 0 && waited+pause > time.Duration(r.wait) {
			return nil, err
		}
		if waited > silentOutage && !reported {
			reported = true
			fmt.Fprintf(r.stderr, "leasewheel: server %s: %s; waiting for it\n", r.servers.Address(), output.OneLine(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// ask tries once, and then waits for the lock up to the flags' limit.
func (r *command) ask(ctx context.Context, acquire acquirer, begin time.Time) (*lock.Lease, error) {
	lease, err := acquire(ctx, 0)
	_, taken := errors.AsType[*lock.NotAcquiredError](err)
	if !taken || r.nonblock || ctx.Err() != nil {
		return lease, err
	}
	err = r.foreign(ctx, err)
	if _, foreign := errors.AsType[*connect.ForeignError](err); foreign {
		return nil, err
	}
	r.say("waiting for lock %q", r.name)
	stop := r.showWaiting(ctx, begin)
	defer stop()
	if r.wait == 0 {
		return acquire(ctx, math.MaxInt64)
	}
	return acquire(ctx, max(time.Duration(r.wait)-time.Since(begin), 0))
}

// foreign returns a *connect.ForeignError if err reports that NAME is in use by a key that is not a
// lock. A semaphore's key is a plain number, so one is not examined.
func (r *command) foreign(ctx context.Context, err error) error {
	if r.kinds.kind() == driver.KindPermit {
		return err
	}
	return r.servers.Foreign(ctx, r.name, err)
}

// refused returns the error and the exit code for a lock that was not acquired.
func (r *command) refused(ctx context.Context, err error) error {
	var (
		name       *lock.NameError
		outside    *lock.RangeError
		foreign    *connect.ForeignError
		mismatched *connect.MismatchError
		permits    *permitsError
		refusal    *lock.NotAcquiredError
	)
	switch {
	case errors.As(err, &name), errors.As(err, &outside), errors.Is(err, lock.ErrUnsupported):
		return exit.Errorf(exit.Usage, "%w", err)
	case errors.As(err, &foreign), errors.As(err, &mismatched), errors.As(err, &permits):
		return exit.Errorf(exit.Unavailable, "%w", err)
	case errors.As(err, &refusal) && !refusal.Foreign && !refusal.OtherKind && r.conflictCode == exit.OK && !r.verbose:
		return &exit.Error{Code: exit.OK} // all is well: cron would mail a line
	case errors.Is(err, lock.ErrNotAcquired):
		return exit.Errorf(r.conflictCode, "%w", r.namingHolder(ctx, err))
	}
	return exit.Errorf(exit.Unavailable, "server %s: %w", r.servers.Address(), err)
}

// runUnder runs the command under the lease and unlocks it.
func (r *command) runUnder(lease *lock.Lease, signals <-chan os.Signal, policy lossPolicy) error {
	terminal := openTerminal()
	defer terminal.close()
	presence, err := r.servers.Presence()
	if err != nil {
		r.release(lease, lease.Discard)
		return exit.Errorf(exit.Unavailable, "%w", err)
	}
	spec := childSpec{path: r.path, argv: r.argv, env: r.environment(lease), policy: policy, presence: presence}
	command, err := startChild(spec)
	if errors.Is(err, unix.ENOEXEC) && isText(r.path) { // a script without "#!", which execvp(3) runs so
		spec.path, spec.argv = shell, append([]string{shell, r.path}, r.argv[1:]...)
		command, err = startChild(spec)
	}
	presence.Close() // of nil it does nothing
	if err != nil {
		r.release(lease, lease.Discard)
		code := exit.CannotExec
		if errors.Is(err, fs.ErrNotExist) {
			code, err = exit.NotFound, errors.New("its interpreter was not found")
		}
		return exit.Errorf(code, "command %q cannot be executed: %w", r.argv[0], err)
	}
	r.say("started %q as process %d", r.argv[0], command.pid)
	// leasewheel takes the foreground back while it is in the background. SIGTTOU is
	// ignored only now, so that the command does not inherit this.
	signal.Ignore(unix.SIGTTOU)
	s := &supervisor{
		child: command, lease: lease, signals: signals, terminal: terminal,
		policy: policy, maxHold: time.Duration(r.maxHold), say: r.say, stderr: r.stderr,
	}
	status, ending := s.supervise()
	held := lease.Valid()
	gone := r.release(lease, lease.Unlock)
	r.say("the command ended with exit code %d", exitCode(status))
	switch {
	case ending != nil:
		return &exit.Error{Code: exit.Lost} // reported already
	case !held || gone:
		return exit.Errorf(exit.Lost, "lock %q was lost while the command ran", r.name)
	case exitCode(status) != exit.OK:
		return &exit.Error{Code: exitCode(status)}
	}
	return nil
}

// orphaned is the signal that the kernel sends to the command when the process that
// started it is killed.
func (a lossAction) orphaned() syscall.Signal {
	switch a {
	case lossKill:
		return unix.SIGKILL
	case lossTerm:
		return unix.SIGTERM
	default:
		return 0
	}
}

// release releases the lock by Unlock, or by Discard if the command has not run, until the
// lease has ended. A failure is reported, but the command's exit code stands: its lease held
// while it ran. gone reports that the lock was no longer ours.
func (r *command) release(lease *lock.Lease, by func(context.Context) error) (gone bool) {
	ctx, cancel := context.WithDeadline(context.Background(), lease.Until())
	defer cancel()
	err := by(ctx)
	switch {
	case err == nil:
		r.say("released lock %q", r.name)
	case errors.Is(err, lock.ErrLost):
		return true
	default:
		fmt.Fprintf(r.stderr, "leasewheel: lock %q was not released: %s\n", r.name, output.OneLine(err))
	}
	return false
}

// lockVariable is the prefix of all variables that describe the lock.
const lockVariable = "LEASEWHEEL_LOCK_"

// environment returns our environment without the variables of an outer leasewheel, plus the
// variables that describe the lock. LEASEWHEEL_STORE is emptied and not left out: without it a
// leasewheel run within COMMAND would lock on this machine alone.
func (r *command) environment(lease *lock.Lease) []string {
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case strings.HasPrefix(name, lockVariable):
			continue
		case name == connect.URLVariable && !r.keepStore:
			variable = name + "="
		}
		env = append(env, variable)
	}
	env = append(env,
		lockVariable+"NAME="+lease.Name(),
		fmt.Sprintf("%sFENCE=%d", lockVariable, lease.Token()),
		lockVariable+"OWNER="+lease.Owner(),
		fmt.Sprintf("%sTTL=%d", lockVariable, time.Duration(r.ttl).Milliseconds()),
	)
	if r.maxHold > 0 {
		over := time.Now().Add(time.Duration(r.maxHold))
		env = append(env, fmt.Sprintf("%sDEADLINE=%d", lockVariable, over.UnixMilli()))
	}
	return env
}

// say prints a progress message, with --verbose.
func (r *command) say(format string, args ...any) {
	if r.verbose {
		fmt.Fprintf(r.stderr, "leasewheel: "+format+"\n", args...)
	}
}
