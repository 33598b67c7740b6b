//go:build real

package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// redissons are the tested versions of Redisson, the newest first.
var redissons = []string{"4.7.0", "4.3.1", "3.52.0", "3.23.5", "3.21.3"}

// chosen are the versions of Redisson that -versions selects.
func chosen() []string {
	switch *versions {
	case "newest":
		return redissons[:1]
	case "all":
		return redissons
	}
	return strings.Split(*versions, ",")
}

// each runs f for every chosen version of Redisson.
func each(t *testing.T, f func(t *testing.T, version string)) {
	eachThat(t, func(string) bool { return true }, f)
}

// eachThat runs f for every chosen version of Redisson with the feature that f tests.
func eachThat(t *testing.T, has func(version string) bool, f func(t *testing.T, version string)) {
	for _, version := range chosen() {
		if !has(version) {
			continue
		}
		t.Run("Redisson "+version, func(t *testing.T) {
			t.Parallel()
			f(t, version)
		})
	}
}

// atLeast reports whether a version of Redisson is another one or newer.
func atLeast(version, other string) bool {
	return slices.Compare(numbers(version), numbers(other)) >= 0
}

func numbers(version string) (n []int) {
	for part := range strings.SplitSeq(version, ".") {
		var i int
		_, _ = fmt.Sscan(part, &i)
		n = append(n, i)
	}
	return n
}

// errMissing matches errors about a runtime that is not installed.
var errMissing = errors.New("missing on this machine")

// need returns a runtime's preparation, or skips t where the runtime is missing. Under CI
// it fails t.
func need(t *testing.T, prepare func() (string, error)) string {
	t.Helper()
	dir, err := prepare()
	switch {
	case err == nil:
	case errors.Is(err, errMissing) && os.Getenv("CI") != "true":
		t.Skipf("%v", err)
	default:
		t.Fatalf("%v", err)
	}
	return dir
}

// The folders that dependencies are fetched into, by what prepares them.
var (
	prepared   = make(map[string]func() (string, error))
	preparedMu sync.Mutex
)

// prepare returns a folder in .cache, which build fills once. Its name contains a digest of
// the inputs.
func prepare(name string, inputs []string, tools []string, build func(dir string) error) func() (string, error) {
	preparedMu.Lock()
	defer preparedMu.Unlock()
	if prepared[name] == nil {
		prepared[name] = sync.OnceValues(func() (string, error) {
			for _, tool := range tools {
				if _, err := exec.LookPath(tool); err != nil {
					return "", fmt.Errorf("interop: %s is %w: its clients are not driven", tool, errMissing)
				}
			}
			dir, err := cached(name, inputs, build)
			if err != nil {
				return "", fmt.Errorf("interop: %s: %w", name, err)
			}
			return dir, nil
		})
	}
	return prepared[name]
}

// cached fills a folder unless it was filled from the same inputs. Of processes that do so at
// the same time, the first one's result is used.
func cached(name string, inputs []string, build func(dir string) error) (string, error) {
	dir, err := filepath.Abs(filepath.Join("../../../.cache/interop", name+"-"+digest(inputs)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "."+name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := build(work); err != nil {
		return "", err
	}
	if err := os.Rename(work, dir); err != nil {
		if _, gone := os.Stat(dir); gone != nil {
			return "", err
		}
	}
	return dir, nil
}

// command runs a program in dir. Its output is part of the error.
func command(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c, err, out)
	}
	return nil
}

// redissonDir returns the folder with the jars of a version and the compiled driver.
func redissonDir(version string) func() (string, error) {
	inputs := []string{"redisson/pom.xml", "redisson/Driver.java"}
	return prepare("redisson-"+version, inputs, []string{"java", "javac", "mvn"}, func(dir string) error {
		jars, err := prepare("redisson-jars-"+version, inputs[:1], nil, func(dir string) error {
			return command("redisson", "mvn", "-B", "-q", "dependency:copy-dependencies",
				"-Dredisson.version="+version, "-DoutputDirectory="+dir)
		})()
		if err != nil {
			return err
		}
		// Relative, for a checkout that is moved: both are in one folder.
		if err := os.Symlink(filepath.Join("..", filepath.Base(jars)), filepath.Join(dir, "jars")); err != nil {
			return err
		}
		return command("redisson", "javac", "-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-cp", filepath.Join(dir, "jars", "*"), "-d", dir, "Driver.java")
	})
}

// javaCommand returns the command that starts a JVM with a driver.
func javaCommand(dir string) *exec.Cmd {
	return exec.Command("java", "-cp", filepath.Join(dir, "jars", "*")+string(os.PathListSeparator)+dir,
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "Driver")
}

func pythonDir() (string, error) {
	return prepare("python", []string{"python/requirements.txt"}, []string{"python3"}, func(dir string) error {
		// Packages without a venv: a venv does not survive being moved.
		return command("python", "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
			"--require-hashes", "-r", "requirements.txt", "--target", dir)
	})()
}

func nodeDir() (string, error) {
	inputs := []string{"node/package.json", "node/package-lock.json", "node/driver.mjs"}
	return prepare("node", inputs, []string{"node", "npm"}, func(dir string) error {
		for _, input := range inputs {
			text, err := os.ReadFile(input)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(input)), text, 0o644); err != nil {
				return err
			}
		}
		return command(dir, "npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit")
	})()
}

// The drivers that tests share, by name. A JVM has many clients.
var shared = struct {
	sync.Mutex
	drivers map[string]*driver
}{drivers: make(map[string]*driver)}

// sharedDriver returns the driver called name, which start starts once.
func sharedDriver(t *testing.T, name string, start func() (*driver, error)) *driver {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	d := shared.drivers[name]
	if d == nil {
		var err error
		if d, err = start(); err != nil {
			t.Fatal(err)
		}
		shared.drivers[name] = d
	}
	return d
}

func closeShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, d := range shared.drivers {
		d.stop()
	}
}

// redisson returns the shared driver of a version.
func redisson(t *testing.T, version string) *driver {
	t.Helper()
	dir := need(t, redissonDir(version))
	return sharedDriver(t, "Redisson "+version, func() (*driver, error) {
		return startDriver("Redisson "+version, javaCommand(dir))
	})
}

// ownRedisson starts a JVM for t alone.
func ownRedisson(t *testing.T, version string, environment ...string) *driver {
	t.Helper()
	c := javaCommand(need(t, redissonDir(version)))
	c.Env = append(os.Environ(), environment...)
	return own(t, "Redisson "+version, c)
}

// own starts a driver for t alone.
func own(t *testing.T, name string, c *exec.Cmd) *driver {
	t.Helper()
	d, err := startDriver(name, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	return d
}

// goCommand returns the command that makes a driver of this test's program.
func goCommand(t *testing.T) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), driverVariable+"=1")
	return c
}

// golang starts a process with the Go libraries for t alone.
func golang(t *testing.T) *driver {
	t.Helper()
	return own(t, "leasewheel", goCommand(t))
}

func python(t *testing.T) *driver {
	t.Helper()
	dir := need(t, pythonDir)
	c := exec.Command("python3", "python/driver.py")
	c.Env = append(os.Environ(), "PYTHONPATH="+dir)
	return own(t, "redis-py", c)
}

func node(t *testing.T) *driver {
	t.Helper()
	return own(t, "node", exec.Command("node", filepath.Join(need(t, nodeDir), "driver.mjs")))
}

// digest returns a hash of some files.
func digest(files []string) string {
	h := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error())
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
