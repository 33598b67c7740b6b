package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

// oldest is the oldest version of PostgreSQL that the tests run on.
const oldest = 13

// errNone reports that there is no PostgreSQL on this machine.
var errNone = errors.New("pgtest: no PostgreSQL in $POSTGRES_BIN, PATH, /usr/lib/postgresql or .cache/postgres/bin; .ci/postgres installs one")

// Find returns the folder of PostgreSQL's programs: $POSTGRES_BIN, or else that of postgres on
// PATH, or else the newest of Debian's, or else what .ci/postgres has installed.
func Find() (string, error) { return find() }

var find = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("POSTGRES_BIN"); named != "" {
		return named, check(named)
	}
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return len(b) - len(a) + slices.Compare([]byte(b), []byte(a)) })
	unpacked, _ := filepath.Abs(filepath.Join("..", "..", ".cache", "postgres", "bin")) // of the tests of lock/pgstore
	for _, folder := range append(append(folders, debian...), unpacked) {
		if check(folder) == nil {
			return folder, nil
		}
	}
	return "", errNone
})

var versionLine = regexp.MustCompile(`PostgreSQL\) (\d+)`)

func check(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	out, err := exec.Command(filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return fmt.Errorf("pgtest: %s has no PostgreSQL: its version is %q", folder, out)
	}
	if major, _ := strconv.Atoi(string(match[1])); major < oldest {
		return fmt.Errorf("pgtest: %s has version %s; %d or newer is needed", folder, match[1], oldest)
	}
	return nil
}
