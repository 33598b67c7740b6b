//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// notRun are the commands of the documents that no test executes, and why.
var notRun = map[string]string{
	`go test -tags real -run '^$' -bench KilledAndFrozen -benchtime 100000x -timeout 30m ./lock/delayqueue`: "takes two minutes; TestWorkersKilledAndFrozen runs it with fewer messages",
	`.cache/bin/benchstat -filter '.unit:sec/op' -col /impl docs/results/benchmarks.txt`:                    "needs the tools, which are fetched",
	`go run ./report -only '^Schedule' -count 1`:                                                            "measures other libraries, which are fetched",
	`go test -bench 'Schedule$/impl=(wheel|runtime)$' -count 6`:                                             "measures other libraries, which are fetched",
	`go test -run '^$' -bench Left -benchtime 1x ./locks -operations 100000`:                                "takes minutes",
	`go test -bench 'Pairs/impl=(leasewheel|redsync)$' -benchtime 1x ./locks`:                               "measures other libraries, which are fetched",
	`go test ./renewal -v -run OneLeaseCostsNoNeighbour -args -isolations 10000`:                            "takes six minutes; sixty of them are part of its own package's tests",
	`go test ./lock/locktest/chaos -run TestFleet -v -args -fleet-seed 0 -fleet-rounds 100`:                 "takes minutes; TestFleet plays some rounds",
	`go test ./lock/locktest/chaos -run TestFleet -v -args -fleet-seed 7 -fleet-round 12`:                   "as above",
	`go test ./lock/locktest/chaos -run TestFleet -v -args -fleet-time 30m`:                                 "as above",
	`go test -tags real ./lock/locktest/chaos -v -args -seed 7 -round 12`:                                   "takes a minute; TestFaultBench runs the bench in its own package",
	`go test -tags real ./lock/locktest/chaos -v -args -faults 'late requests,process stopped'`:             "takes a minute, as above",
}

// measuring are the commands that exit with 1 if a promise was broken, which the machine may
// cause, or with 1 or 2 by what they find on the server.
var measuring = []string{"leasewheel demo", "leasewheel bench", "leasewheel doctor", "leasewheel queue revive", "for i in 1 2 3 4 5 6; do leasewheel accuracy"}

// commandLines returns the lines of a block without comments, each with its continuations.
func commandLines(b block) []string {
	var lines []string
	var begun string
	for _, line := range b.lines {
		if command, more := strings.CutSuffix(line, `\`); more {
			begun += command
			continue
		}
		line, _, _ = strings.Cut(begun+strings.TrimLeft(line, " "), " #")
		begun = ""
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// shell is a scratch folder in which the commands of documents run, as at a user's: with a
// server, with leasewheel on the PATH, and with the programs that the documents invent.
type shell struct {
	folder string
	env    []string
	urls   *strings.Replacer // the documents' addresses, by those of real servers
	locker *lock.Locker      // as another process
}

// leasewheelScript runs the command under test. What measures is bounded, since a test has
// no use for its figures.
const leasewheelScript = `#!/bin/sh
case "$1 $2" in
"accuracy stress") set -- "$@" -n 10000 --producers 2 --pending 2500 --load idle ;;
"accuracy "*) set -- "$@" -n 50 --delay 1ms..20ms --load idle ;;
"bench renewal") set -- "$@" -n 30 --baseline 0 --ttl 1s --duration 2s ;;
"bench lock") set -- "$@" --hold 0 --duration 100ms ;;
"watch "*) set -- "$@" --interval 100ms --count 2 ;;
"demo"*) set -- "$@" --processes 3 --leases 100 --ttl 2s --duration 1s ;;
esac
exec "$LEASEWHEEL_TEST_PROGRAM" "$@"
`

// newShell starts one server, or three more for commands that need a quorum.
func newShell(t *testing.T, quorum bool) *shell {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	server := redistest.Start(t, redistest.Config{Users: []string{"worker on >token-of-worker ~* &* +@all"}})
	s := &shell{folder: t.TempDir()}
	secrets := filepath.Join(s.folder, "secrets")
	worker := strings.Replace(server.URL(), "unix://", "unix://worker@", 1)
	addresses := []string{
		"redis://127.0.0.1:6379", server.URL(), "/run/secrets", secrets,
		"redis://worker@cache:6379", worker, "rediss://worker@cache:6379", worker,
	}
	if quorum {
		for _, name := range []string{"a", "b", "c"} {
			addresses = append(addresses, "redis://"+name, redistest.Start(t, redistest.Config{}).URL())
		}
	}
	s.urls = strings.NewReplacer(addresses...)
	s.env = append(os.Environ(), commandtest.ActAsCommand+"=1", "LEASEWHEEL_TEST_PROGRAM="+program, "GORACE=atexit_sleep_ms=0",
		connect.URLVariable+"="+server.URL(), "PATH="+filepath.Join(s.folder, "bin")+":"+os.Getenv("PATH"))
	s.write(t, "secrets/redis", server.URL())
	s.write(t, "secrets/shop", "secret")
	s.write(t, "secrets/worker", "token-of-worker\n")
	s.write(t, "print-token", "#!/bin/sh\necho token-of-worker\n")
	s.write(t, "bin/leasewheel", leasewheelScript)
	for _, program := range []string{"bin/backup", "bin/make", "warm.sh", "report", "train", "job"} {
		s.write(t, program, "#!/bin/sh\n")
	}
	s.write(t, "bin/redis-cli", "#!/bin/sh\nexec grep -q '^ACL SETUSER '\n")
	s.write(t, "bin/benchstat", "#!/bin/sh\nexec test -s \"$1\" -a -s \"$2\"\n")

	store, err := redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	s.locker, err = lock.New(store, longLeases)
	require.NoError(t, err)
	t.Cleanup(func() { s.locker.Close() })
	return s
}

func (s *shell) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(s.folder, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	commandtest.WriteExecutable(t, path, text)
}

// run executes a line and returns its exit code with what it has printed.
func (s *shell) run(t *testing.T, line string) (int, string) {
	t.Helper()
	ctx := t.Context()
	command := exec.CommandContext(ctx, "sh", "-c", s.urls.Replace(line))
	command.Dir, command.Env = s.folder, s.env
	command.WaitDelay = commandtest.Patience // what the shell has started may outlive it, and keep its output open
	if strings.HasPrefix(line, "make ") {
		command = exec.CommandContext(ctx, "sh", "-c", strings.Replace(line, "make", "make -n", 1)) // names the commands only
		command.Dir = moduleDir(t)
	}
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, line)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// measures reports whether a line measures time, or compares what such lines have measured.
func measures(line string) bool {
	return regexp.MustCompile(`leasewheel (accuracy|bench|demo)\b|^benchstat `).MatchString(line)
}

// The commands of every document run, on real servers, or are listed with the reason. Those
// that develop this module name targets of its Makefile. TestShellBlocksThatMeasure runs
// those that measure.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	unused := make(map[string]bool)
	for line := range notRun {
		unused[line] = true
	}
	for _, document := range documents(t) {
		for _, b := range documentBlocks(t, document) {
			if b.language != "sh" {
				continue
			}
			for _, line := range commandLines(b) {
				delete(unused, line)
			}
		}
	}
	assert.Empty(t, unused, "commands that no document has")
	runBlocks(t, func(line string) bool { return !measures(line) })
}

// runBlocks runs the lines that are chosen.
func runBlocks(t *testing.T, chosen func(line string) bool) {
	t.Helper()
	redistest.Need(t)
	seen := make(map[string]bool)
	for _, document := range documents(t) {
		for _, b := range documentBlocks(t, document) {
			lines := slices.DeleteFunc(commandLines(b), func(line string) bool {
				again := seen[line] && strings.HasPrefix(line, "leasewheel run ") // README has some of the manual's
				seen[line] = true
				return notRun[line] != "" || !chosen(line) || again
			})
			if b.language == "sh" && len(lines) > 0 {
				t.Run(document+": "+lines[0], func(t *testing.T) {
					t.Parallel()
					runBlock(t, lines)
				})
			}
		}
	}
}

func runBlock(t *testing.T, lines []string) {
	t.Helper()
	s := newShell(t, strings.Contains(strings.Join(lines, "\n"), "redis://a"))
	for _, line := range lines {
		if strings.Contains(line, "| jq ") {
			if _, err := exec.LookPath("jq"); err != nil {
				t.Logf("left out, since there is no jq: %s", line)
				continue
			}
		}
		if strings.HasPrefix(line, "go run ./cmd/leasewheel ") {
			line = strings.Replace(line, "go run ./cmd/leasewheel", "leasewheel", 1)
		}
		// Another process holds the lock of the examples.
		held, err := s.locker.Mutex("orders:42").TryLock(t.Context())
		require.NoError(t, err)
		code, out := s.run(t, line)
		accepted := []int{0}
		if slices.ContainsFunc(measuring, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			accepted = []int{0, 1, 2, exit.Overloaded}
		}
		assert.Contains(t, accepted, code, "%s\n%s", line, out)
		if !slices.Contains(accepted, 1) {
			assert.NotContains(t, out, "leasewheel: ", line) // of a command before a pipe, too
		}
		if err := held.Unlock(t.Context()); err != nil && !strings.Contains(line, "unlock --force") {
			assert.NoError(t, err, line)
		}
	}
}
