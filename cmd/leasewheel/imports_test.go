package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/leasewheel/leasewheel"

// fence lists the packages that a package may be built from, besides the standard
// library. Everything that a package imports is compiled into its importers' programs, so
// a new name in a list is a decision, not a detail.
type fence struct {
	own    []string // packages of this module
	others []string // prefixes of other modules' packages
	tests  bool     // its tests stay within the fence too
}

// partsOfRedisstore are the packages of which lock/redisstore is made.
var partsOfRedisstore = []string{"lock/internal/panics", "lock/redisstore/internal/check", "lock/redisstore/internal/fault", "lock/redisstore/internal/lua", "lock/redisstore/internal/pubsub", "lock/redisstore/internal/transport"}

// Dependencies run one way:
//
//	timeout ← bucket ← wheel ← renewal ← lock/driver ← lock, lock/redisstore, lock/quorum
//
// The timer and the packages that it uses import the standard library alone, tests
// included, so that a program that imports just the timer gets an empty go.sum.
var fences = map[string]fence{
	"timeout": {tests: true},
	"bucket":  {own: []string{"timeout"}, tests: true},
	"wheel":   {own: []string{"timeout", "bucket"}, tests: true},

	// The watchdog renews any lease: no Redis.
	"renewal": {own: []string{"timeout", "bucket", "wheel"}, others: []string{"golang.org/x/"}},

	// A lock means the same on every store: no go-redis.
	"lock/driver": {own: []string{"timeout", "bucket", "wheel", "renewal"}, others: []string{"golang.org/x/"}},
	"lock":        {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe"}, others: []string{"golang.org/x/"}},

	// The suite for stores brings no server and no client into an engine's module.
	"lock/driver/drivertest": {
		own:    []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock"},
		others: []string{"golang.org/x/", "github.com/anishathalye/porcupine"}, tests: true,
	},

	// What users import for their own tests has no part of the suite, of redis-servers, or of
	// the fault bench.
	"lock/locktest": {
		own:    append([]string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock", "lock/internal/machine", "lock/memstore", "lock/redisstore", "lock/locktest/internal/network"}, partsOfRedisstore...),
		others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic", "github.com/alicebob/miniredis/", "github.com/yuin/gopher-lua"},
	},

	"lock/internal/backoff": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver"}, others: []string{"golang.org/x/"}, tests: true},
	"lock/internal/logging": {others: []string{"golang.org/x/"}, tests: true},
	"lock/internal/panics":  {},
	"lock/internal/reentry": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver"}, others: []string{"golang.org/x/"}},

	// The policies of retries are functions.
	"lock/retry": {},

	// Reports are structs that lock fills in.
	"lock/observe": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver"}, others: []string{"golang.org/x/"}},

	// The meaning of the locks needs no store, and stores need not package lock for it.
	"lock/internal/machine": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver"}, others: []string{"golang.org/x/"}},

	// A store in memory is that meaning and a map.
	"lock/memstore": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/machine"}, others: []string{"golang.org/x/"}},

	// A store in files is that meaning and system calls.
	"lock/filestore": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/machine"}, others: []string{"golang.org/x/"}},

	// The exporters of metrics are modules of their own.
	"lock/internal/exporter": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock"}, others: []string{"golang.org/x/"}},

	// A store needs the contract of stores alone, not package lock.
	"lock/redisstore": {
		own:    append([]string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging"}, partsOfRedisstore...),
		others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"},
	},
	"lock/redisstore/internal/check":     {own: []string{"lock/internal/backoff", "lock/internal/panics", "lock/redisstore/internal/fault", "lock/redisstore/internal/lua", "lock/redisstore/internal/pubsub", "lock/redisstore/internal/transport", "lock/driver", "renewal", "wheel", "bucket", "timeout"}, others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"}},
	"lock/redisstore/internal/fault":     {own: []string{"lock/internal/panics", "lock/driver", "renewal", "wheel", "bucket", "timeout"}, others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"}},
	"lock/redisstore/internal/lua":       {},
	"lock/redisstore/internal/pubsub":    {own: []string{"lock/internal/backoff", "lock/internal/panics", "lock/redisstore/internal/fault", "lock/driver", "renewal", "wheel", "bucket", "timeout"}, others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"}},
	"lock/redisstore/internal/transport": {own: []string{"lock/internal/backoff", "lock/internal/panics", "lock/redisstore/internal/fault", "lock/redisstore/internal/lua", "lock/redisstore/internal/pubsub", "lock/driver", "renewal", "wheel", "bucket", "timeout"}, others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"}},

	// A delay queue is another structure on a store's server.
	"lock/delayqueue": {
		own:    append([]string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock", "lock/redisstore"}, partsOfRedisstore...),
		others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"},
	},

	// An election is held by a lock, on any store.
	"lock/elect": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock"}, others: []string{"golang.org/x/"}},

	// Idempotent requests need locks of any store. Replies on Redis use its store, as a delay
	// queue does.
	"lock/idempotency": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock"}, others: []string{"golang.org/x/"}},
	"lock/idempotency/redisreplies": {
		own:    append([]string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/logging", "lock/internal/reentry", "lock/retry", "lock/observe", "lock", "lock/idempotency", "lock/redisstore"}, partsOfRedisstore...),
		others: []string{"golang.org/x/", "github.com/redis/go-redis/", "github.com/cespare/xxhash/", "go.uber.org/atomic"},
	},

	// A quorum is made of any stores.
	"lock/quorum": {own: []string{"timeout", "bucket", "wheel", "renewal", "lock/driver", "lock/internal/backoff", "lock/internal/panics"}, others: []string{"golang.org/x/"}},
}

// unfenced reports whether a package may use anything: it is a program, or
// serves tests.
func unfenced(pkg string) bool {
	return strings.HasPrefix(pkg, "lock/locktest/") || slices.ContainsFunc([]string{"bench", "cmd", "lock/internal/exporter/exportertest", "lock/internal/machine/machinetest"}, func(folder string) bool {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}

// listed is go list's report of a package: Deps names everything that it is built from.
type listed struct {
	ImportPath string
	Deps       []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		pkg, isTest := strings.CutSuffix(name, ".test")
		// "wheel [wheel.test]" is a part of a test binary, which is listed itself.
		if strings.Contains(name, " ") || unfenced(pkg) {
			continue
		}
		f, ok := fences[pkg]
		assert.True(t, ok, "%s: say in fences what it may import", pkg)
		if !isTest || f.tests {
			assert.Empty(t, f.breaches(pkg, p.Deps), "%s must not be built from these", name)
		}
	}
}

// breaches returns the dependencies that the fence of pkg shuts out.
func (f fence) breaches(pkg string, deps []string) []string {
	return slices.DeleteFunc(slices.Clone(deps), func(dep string) bool {
		dep, _, _ = strings.Cut(dep, " ") // "wheel [wheel.test]"
		dep = strings.TrimSuffix(dep, "_test")
		if own, ok := strings.CutPrefix(dep, module+"/"); ok {
			return own == pkg || slices.Contains(f.own, own)
		}
		domain, _, _ := strings.Cut(dep, "/")
		return !strings.Contains(domain, ".") || // the standard library
			slices.ContainsFunc(f.others, func(prefix string) bool { return strings.HasPrefix(dep, prefix) })
	})
}

func TestFences(t *testing.T) {
	deps := []string{"time", "vendor/golang.org/x/net/idna", module + "/bucket", module + "/wheel [" + module + "/wheel.test]",
		module + "/wheel_test [" + module + "/wheel.test]", module + "/lock", "github.com/stretchr/testify/require", "golang.org/x/sync/errgroup"}
	f := fence{own: []string{"bucket"}, others: []string{"golang.org/x/"}}
	assert.Equal(t, []string{module + "/lock", "github.com/stretchr/testify/require"}, f.breaches("wheel", deps))
}

// A program that imports the timer alone needs no other module: with nothing to fetch and
// nothing in the cache, its module is tidy, builds, and has no go.sum.
func TestConsumerOfTheWheel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module consumer\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+strconv.Quote(moduleDir(t))+"\n")
	write("main.go", "package main\n\nimport \""+module+"/wheel\"\n\nfunc main() { _, _ = wheel.New(wheel.Config{}) }\n")
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", os.DevNull, "."}} {
		command := exec.Command("go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GOMODCACHE="+t.TempDir())
		out, err := command.CombinedOutput()
		require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
	}
	require.NoFileExists(t, filepath.Join(dir, "go.sum"))
}

// The folders at the root are the map of the project, and are fixed.
func TestTopLevelFolders(t *testing.T) {
	allowed := []string{
		"bench", "bucket", "cmd", "docs", "lock", "renewal", "timeout", "wheel",
		".cache", ".ci", ".git", ".github",
	}
	entries, err := os.ReadDir(moduleDir(t))
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.IsDir() {
			assert.Contains(t, allowed, entry.Name())
		}
	}
}

// list returns every package of the module, and beside each one that has tests
// its test binary, "….test".
func list(t *testing.T) []listed {
	t.Helper()
	command := exec.Command("go", "list", "-test", "-json=ImportPath,Deps", "./...")
	command.Dir = moduleDir(t)
	command.Stderr = os.Stderr
	out, err := command.Output()
	require.NoError(t, err)
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p listed
		require.NoError(t, decoder.Decode(&p))
		packages = append(packages, p)
	}
	require.Greater(t, len(packages), len(fences))
	return packages
}

func moduleDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}
