package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// oldest is the oldest major version of Redis that the servers here may have. Sharded
// pub/sub and enable-debug-command came with it.
const oldest = 7

// errNoServer reports that there is no redis-server on this machine.
var errNoServer = errors.New("redistest: no redis-server in $REDIS_SERVER, PATH or .cache/redis/bin; `make test` installs one")

// Find returns the path of redis-server: $REDIS_SERVER, or else the one on PATH, or else
// .cache/redis/bin/redis-server in the root of the working directory's module. The error
// is [errNoServer] if there is none, and another one if $REDIS_SERVER or the version is
// wrong. The first result is kept for the life of the process.
func Find() (string, error) { return find() }

var find = sync.OnceValues(func() (string, error) {
	path, err := locate(os.Getenv("REDIS_SERVER"))
	if err != nil {
		return "", err
	}
	return path, checkVersion(path)
})

// locate returns named, or the server in one of the usual places.
func locate(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("redistest: REDIS_SERVER: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	if root, ok := moduleRoot(); ok {
		if path, err := exec.LookPath(filepath.Join(root, ".cache", "redis", "bin", "redis-server")); err == nil {
			return path, nil
		}
	}
	return "", errNoServer
}

// moduleRoot returns the nearest directory upwards that contains both a go.mod and .ci,
// so that a nested module finds the cache of the whole repository.
func moduleRoot() (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if exists(filepath.Join(dir, "go.mod")) && exists(filepath.Join(dir, ".ci")) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// "Redis server v=7.0.15 sha=…"; Valkey prints the same.
var versionLine = regexp.MustCompile(`v=(\d+)\.`)

func checkVersion(path string) error {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("redistest: %s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		line, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("redistest: %s is not a redis-server: its output is %q", path, line)
	}
	if major, _ := strconv.Atoi(string(match[1])); major < oldest {
		return fmt.Errorf("redistest: %s is version %s; %d or newer is needed", path, match[1], oldest)
	}
	return nil
}
