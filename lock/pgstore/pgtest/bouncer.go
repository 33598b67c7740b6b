package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// errNoBouncer reports that there is no PgBouncer on this machine.
var errNoBouncer = errors.New("pgtest: no PgBouncer in $PGBOUNCER, PATH, /usr/sbin or .cache/pgbouncer/bin; .ci/postgres --pgbouncer unpacks one")

// findBouncer returns the path of PgBouncer: $PGBOUNCER, or what is on PATH or in Debian's folder,
// or what .ci/postgres has unpacked.
func findBouncer() (string, error) {
	unpacked, err := filepath.Abs(filepath.Join("..", "..", ".cache", "pgbouncer", "bin", "pgbouncer")) // of the tests of lock/pgstore
	if err != nil {
		return "", err
	}
	candidates := []string{"pgbouncer", "/usr/sbin/pgbouncer", unpacked}
	if named := os.Getenv("PGBOUNCER"); named != "" {
		candidates = []string{named}
	}
	for _, name := range candidates {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBouncer
}

// StartBouncer starts a PgBouncer before a server, in transaction mode and without prepared
// statements, and ends it with t. It skips t where [Need] does, if there is none.
//
// Its connections are those of a server. It cannot be started again.
func StartBouncer(t testing.TB, of *Server) *Server {
	t.Helper()
	path, err := findBouncer()
	need(t, err)
	s, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.SplitN(string(out), "\n", 2)[0])
	settings := fmt.Sprintf("[databases]\n* = host=%s user=postgres\n[pgbouncer]\nunix_socket_dir = %s\nlisten_port = 5432\n"+
		"logfile = %s/log\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 100\nmax_client_conn = 500\n", of.dir, s.dir, s.dir)
	if !strings.Contains(string(out), "PgBouncer 1.18.") {
		settings += "max_prepared_statements = 0\n" // older versions have no such setting
	}
	file := filepath.Join(s.dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	c := s.command(path, file)
	if err := s.start(c); err != nil {
		t.Fatal(err)
	}
	if err := s.answers(time.Now().Add(readyTimeout)); err != nil {
		t.Fatal(err)
	}
	return s
}
