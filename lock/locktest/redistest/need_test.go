package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeTB records the calls of a test.
type fakeTB struct {
	errors, skips []string
	logs          string
	cleanups      []func()
}

// run runs a test body as package testing does: on a goroutine that a fatal
// error or a skip ends, and then its cleanups.
func (f *fakeTB) run(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
}

func (f *fakeTB) Helper()                   {}
func (f *fakeTB) Cleanup(c func())          { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Failed() bool              { return len(f.errors) > 0 }
func (f *fakeTB) Logf(s string, a ...any)   { f.logs += fmt.Sprintf(s, a...) }
func (f *fakeTB) Errorf(s string, a ...any) { f.errors = append(f.errors, fmt.Sprintf(s, a...)) }
func (f *fakeTB) Fatalf(s string, a ...any) { f.Errorf(s, a...); runtime.Goexit() }
func (f *fakeTB) Skipf(s string, a ...any) {
	f.skips = append(f.skips, fmt.Sprintf(s, a...))
	runtime.Goexit()
}

func TestNeed(t *testing.T) {
	wrong := fmt.Errorf("version 6")
	for name, c := range map[string]struct {
		err             error
		required        bool
		skipped, failed bool
	}{
		"there":                  {nil, true, false, false},
		"missing":                {errNoServer, false, true, false},
		"missing, but required":  {errNoServer, true, false, true},
		"unusable":               {wrong, false, false, true},
		"unusable, and required": {wrong, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake, before := &fakeTB{}, skipped.Load()
			fake.run(func() { need(fake, c.err, c.required) })
			t.Cleanup(func() { skipped.Store(before) }) // these were no tests
			require.Equal(t, c.skipped, len(fake.skips) == 1)
			require.Equal(t, c.failed, fake.Failed())
			require.Equal(t, c.skipped, skipped.Load() == before+1, "what is skipped is counted")
		})
	}
}

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		require, ci string
		required    bool
	}{{"", "", false}, {"1", "", true}, {"", "true", true}, {"0", "false", false}} {
		t.Setenv("REQUIRE_REDIS", c.require)
		t.Setenv("CI", c.ci)
		require.Equal(t, c.required, required(), "%+v", c)
	}
}

// program writes a shell script that can be run under a name.
func program(t *testing.T, path, script string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	return path
}

func TestLocate(t *testing.T) {
	root := t.TempDir()
	onPath := program(t, filepath.Join(root, "bin", "redis-server"), "")
	require.NoError(t, os.Mkdir(filepath.Join(root, ".ci"), 0o700))
	for _, module := range []string{root, filepath.Join(root, "bench")} {
		require.NoError(t, os.MkdirAll(module, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module m\n"), 0o600))
	}
	deep := filepath.Join(root, "bench", "deep")
	require.NoError(t, os.Mkdir(deep, 0o700))
	t.Chdir(deep)

	t.Setenv("PATH", t.TempDir())
	_, err := locate("")
	require.ErrorIs(t, err, errNoServer)

	cached := program(t, filepath.Join(root, ".cache", "redis", "bin", "redis-server"), "")
	found, err := locate("")
	require.NoError(t, err)
	require.Equal(t, cached, found, "from a nested module's folder")

	t.Setenv("PATH", filepath.Dir(onPath))
	found, err = locate("")
	require.NoError(t, err)
	require.Equal(t, onPath, found, "PATH comes before the cache")

	named := program(t, filepath.Join(t.TempDir(), "my-redis"), "")
	found, err = locate(named)
	require.NoError(t, err)
	require.Equal(t, named, found, "what was named comes first")

	_, err = locate(filepath.Join(root, "nowhere"))
	require.ErrorContains(t, err, "REDIS_SERVER")
	require.NotErrorIs(t, err, errNoServer, "a wrong name is not to be skipped over")
}

func TestCheckVersion(t *testing.T) {
	for says, problem := range map[string]string{
		"echo 'Redis server v=7.0.15 sha=00000000:0'": "",
		"echo 'Valkey server v=8.1.0 sha=00000000:0'": "",
		"echo 'Redis server v=6.2.9 sha=00000000:0'":  "is version 6; 7 or newer is needed",
		"echo 'ls (GNU coreutils) 9.1'; echo more":    `is not a redis-server: its output is "ls (GNU coreutils) 9.1"`,
		"echo 'cannot load library' >&2; exit 127":    "cannot load library",
	} {
		err := checkVersion(program(t, filepath.Join(t.TempDir(), "redis-server"), says))
		if problem == "" {
			require.NoError(t, err, says)
		} else {
			require.ErrorContains(t, err, problem)
		}
	}
}

// The output of a run without redis-server, as the go command shows it.
func TestSummary(t *testing.T) {
	fake := exec.Command(os.Args[0], "-test.run=^TestPause")
	fake.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir()}
	fake.Dir = t.TempDir() // no .cache above it
	out, err := fake.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out),
		"skipped\tgithub.com/leasewheel/leasewheel/lock/locktest/redistest\t2 tests, for want of a redis-server; `make test` installs one\n")
}
