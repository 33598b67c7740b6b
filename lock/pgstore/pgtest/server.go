package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// readyTimeout bounds how long a server may take until it answers. It takes 0.1 s, and some
	// seconds after a crash; the rest is for a very busy machine.
	readyTimeout = 90 * time.Second
	// endTimeout bounds how long a server may take for an immediate shutdown, and its processes to end
	// after it was killed. Only a hang reaches it.
	endTimeout = time.Minute
)

// Server is a PostgreSQL server on a unix socket.
type Server struct {
	dir      string
	settings []string
	account  *account // nil: that of the test

	mu      sync.Mutex
	process *os.Process   // guarded by mu
	exited  chan struct{} // guarded by mu; closed when the process has ended
}

// Start starts a server and ends it with t. It skips t if there is no PostgreSQL, unless CI=true.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Need(t)
	s, err := Launch(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", s.tail())
		}
		s.Close()
	})
	return s
}

// Need skips t if there is no PostgreSQL on this machine. With REQUIRE_POSTGRES=1 or CI=true it
// fails t instead.
func Need(t testing.TB) {
	t.Helper()
	_, err := Find()
	need(t, err)
}

func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case (errors.Is(err, errNone) || errors.Is(err, errNoBouncer)) && os.Getenv("REQUIRE_POSTGRES") != "1" && os.Getenv("CI") != "true":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// Launch starts a server with settings such as "fsync=off". The caller closes it.
func Launch(settings ...string) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	s, err := folder()
	if err != nil {
		return nil, err
	}
	s.settings = settings
	initdb := s.command(filepath.Join(bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: initdb: %w: %s", err, out), os.RemoveAll(s.dir))
	}
	if err := s.Restart(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// folder makes the folder of a server.
func folder() (*Server, error) {
	dir, err := os.MkdirTemp("/tmp", "pgtest-") // short: a socket's path has 107 bytes at most
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if s.account, err = own(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC", "HOME="+s.dir)
	c.SysProcAttr = s.account.attributes()
	return c
}

// Restart kills the server if it runs (SIGKILL), and starts it with its data.
func (s *Server) Restart() error {
	s.Kill()
	bin, err := Find()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin := time.Now()
	for {
		c := s.command(filepath.Join(bin, "postgres"), "-D", s.data(), "-c", "listen_addresses=", "-c", "unix_socket_directories="+s.dir,
			"-c", "max_connections=300", "-c", "shared_buffers=64MB", "-c", "max_wal_size=256MB", "-c", "max_prepared_transactions=0",
			"-c", "dynamic_shared_memory_type=mmap") // in the data, which goes with the server
		for _, setting := range s.settings {
			c.Args = append(c.Args, "-c", setting)
		}
		c.Stdout, c.Stderr = log, log
		if err := s.start(c); err != nil {
			return fmt.Errorf("pgtest: %w", err)
		}
		// After a SIGKILL the old server's processes may still have its memory: then it ends at once.
		if err = s.answers(begin.Add(readyTimeout)); err == nil {
			return nil
		}
		if s.Kill(); time.Since(begin) > readyTimeout {
			return fmt.Errorf("pgtest: the server does not answer: %w\n%s", err, s.tail())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// start starts the server on a thread that lives as long: where the kernel can, it ends the
// server with the thread.
func (s *Server) start(c *exec.Cmd) error {
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		endWithParent(c.SysProcAttr)
		err := c.Start()
		if started <- err; err == nil {
			_ = c.Wait() // it is killed
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.exited = c.Process, exited
	return nil
}

func (s *Server) answers(by time.Time) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			_ = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("it has ended")
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(by) {
			return err
		}
	}
}

// Follow ends the server, replaces its data by a copy of those of another one, which runs, and
// starts it as that one's streaming replica. `SELECT pg_promote()` makes it a server of its own.
func (s *Server) Follow(primary *Server) error {
	s.Kill()
	s.freeMemory()
	bin, err := Find()
	if err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) { // the processes of a server that was killed may still write
		if err := os.RemoveAll(s.data()); err == nil {
			break
		} else if time.Since(begin) > endTimeout {
			return err
		}
	}
	// -R writes the address of the other one into the data. A checkpoint that is not fast takes minutes.
	backup := s.command(filepath.Join(bin, "pg_basebackup"), "-D", s.data(), "-d", primary.URL(), "-R", "-c", "fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_basebackup: %w: %s", err, out)
	}
	return s.Restart()
}

// PID returns the id of the server's main process.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid
}

// Signal sends a signal to the server's main process.
func (s *Server) Signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = s.process.Signal(signal)
	}
}

// Kill ends the server as a crash does (SIGKILL), and returns when its main process has ended.
// Its other processes notice that and end.
func (s *Server) Kill() {
	s.Signal(syscall.SIGKILL)
	s.ended(endTimeout)
}

func (s *Server) ended(within time.Duration) bool {
	s.mu.Lock()
	exited := s.exited
	s.mu.Unlock()
	if exited == nil {
		return true
	}
	select {
	case <-exited:
		return true
	case <-time.After(within):
		return false
	}
}

// Close ends the server, and removes its data.
func (s *Server) Close() {
	if s.Signal(syscall.SIGQUIT); !s.ended(endTimeout) {
		s.Kill()
	}
	s.freeMemory()
	_ = os.RemoveAll(s.dir)
}

// freeMemory removes the shared memory of a server that was killed and has not been started again since: the
// seventh line of its file has the key and the number.
func (s *Server) freeMemory() {
	pid, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if lines := strings.Split(string(pid), "\n"); len(lines) > 6 {
		if memory := strings.Fields(lines[6]); len(memory) == 2 {
			_ = s.command("ipcrm", "-m", memory[1]).Run()
		}
	}
}

// URL is the server's, for its superuser.
func (s *Server) URL() string { return "postgres:///postgres?user=postgres&host=" + s.dir }

// Dir is the folder with the server's socket.
func (s *Server) Dir() string { return s.dir }

// Pool returns a pool of the server's connections, which ends with t. change may change its
// configuration.
func (s *Server) Pool(t testing.TB, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 8
	for _, f := range change {
		f(c)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// tail returns the end of the server's log.
func (s *Server) tail() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	lines := strings.Split(string(b), "\n")
	return strings.Join(lines[max(len(lines)-30, 0):], "\n")
}
