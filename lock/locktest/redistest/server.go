package redistest

import (
	"bufio"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// readyTimeout bounds how long servers may take until they answer and, in a set or a
// cluster, know each other. One server takes about 11 ms and a set 2 s; the rest is for a
// very busy machine: a sentinel whose own timer was late by 2 s does nothing for 30 s
// (its TILT mode).
const readyTimeout = 90 * time.Second

// Config configures a server. Its zero value is a server on a unix socket, without a
// password, that writes nothing to disk.
type Config struct {
	// TCP also opens a free port on 127.0.0.1, and makes [Server.URL] and
	// clients use it. Processes in other network namespaces, proxies,
	// replication and clusters need it.
	TCP bool

	// TLS makes that port accept TLS only, with a certificate of an authority that no
	// system trusts: see [Server.certificateFiles]. It implies TCP. Clients need no
	// certificate unless Directives contains "tls-auth-clients yes".
	TLS bool

	// Password is the default user's; "" leaves the server open.
	Password string

	// Users are ACL users in the form of redis.conf, for example
	// "alice on >secret ~lock:* &lock:* +@all".
	Users []string

	// AOF writes every command to an append-only file, so that a killed server has its
	// data back after [Server.Restart]. Without it, a restarted server is empty.
	AOF bool

	// Directives are further lines of redis.conf. They come last and take precedence.
	Directives []string

	// Env are further variables of the server's environment, "KEY=value" each.
	Env []string

	sentinel, cluster bool
}

// Server is a running redis-server. URL, Options, Client and Log are safe for concurrent
// use, its other methods are not.
type Server struct {
	config Config
	dir    string // contains all files of this server, and is removed with it

	port    int            // 0 without TCP
	busPort int            // 0 outside a cluster
	claims  []port         // of both, until Close
	trust   *x509.CertPool // nil without TLS

	process *process // the running one, or the last one that ran
}

// Start starts a server and ends it with t. It skips or fails t without a redis-server,
// see [Need]. When t fails, the end of the server's log is printed.
func Start(t TB, config Config) *Server {
	t.Helper()
	Need(t)
	s, err := Launch(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.endWith(t)
	return s
}

// Launch starts a server outside a test and returns once it answers. Close ends
// it.
func Launch(config Config) (*Server, error) {
	dir, err := shortTempDir()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	config.TCP = config.TCP || config.TLS
	s := &Server{config: config, dir: dir}
	for attempt := 1; ; attempt++ {
		err := s.configure()
		if err == nil {
			err = s.start()
		}
		if err == nil {
			return s, nil
		}
		// Between our check and its bind, another process may take the port.
		if attempt == 5 || !strings.Contains(s.Log(), "Address already in use") {
			return nil, errors.Join(err, s.Close())
		}
	}
}

// endWith closes the server at the end of t. A server that ended on its own fails t: that
// is a crash, even if the test has not noticed it.
func (s *Server) endWith(t TB) {
	t.Cleanup(func() {
		t.Helper()
		crashed := !s.process.running() && !s.process.killed
		if crashed {
			t.Errorf("redistest: redis-server ended on its own: %v", s.process.state)
		}
		if t.Failed() {
			t.Logf("redis-server %s, end of its log:\n%s", s.URL(), tail(s.Log(), 2048))
		}
		if err := s.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
}

// configure takes ports and writes the configuration file. It is not written again at a
// restart: a sentinel stores its knowledge there.
func (s *Server) configure() error {
	s.releasePorts() // of a launch that is retried
	var err error
	if s.config.TCP {
		if s.port, err = s.takePort(); err != nil {
			return err
		}
	}
	if s.config.cluster {
		if s.busPort, err = s.takePort(); err != nil {
			return err
		}
	}
	if s.config.TLS {
		if err := s.writeCertificates(); err != nil {
			return fmt.Errorf("redistest: certificates: %w", err)
		}
	}
	if err := os.WriteFile(s.path("redis.conf"), []byte(s.redisConf()), 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// takePort takes a port for the server.
func (s *Server) takePort() (number int, err error) {
	p, err := freePort()
	if err == nil {
		s.claims = append(s.claims, p)
	}
	return p.number, err
}

func (s *Server) releasePorts() {
	for _, p := range s.claims {
		p.release()
	}
	s.claims = nil
}

func (s *Server) redisConf() string {
	port, tlsPort := s.port, 0
	if s.config.TLS {
		port, tlsPort = 0, s.port
	}
	lines := []string{
		fmt.Sprintf("port %d", port),
		"bind 127.0.0.1",
		"unixsocket " + strconv.Quote(s.path("socket")),
		"unixsocketperm 700",
		"dir " + strconv.Quote(s.dir),
	}
	if s.config.TLS {
		authority, certificate, key := s.certificateFiles()
		lines = append(lines, fmt.Sprintf("tls-port %d", tlsPort), "tls-auth-clients optional",
			"tls-ca-cert-file "+strconv.Quote(authority), "tls-cert-file "+strconv.Quote(certificate), "tls-key-file "+strconv.Quote(key))
	}
	if s.config.Password != "" {
		password := strconv.Quote(s.config.Password)
		lines = append(lines, "requirepass "+password, "masterauth "+password)
	}
	if s.config.cluster {
		lines = append(lines, fmt.Sprintf("cluster-port %d", s.busPort))
	}
	if !s.config.sentinel {
		lines = append(lines,
			`save ""`,
			"enable-debug-command local", // cannot be allowed later
			"repl-diskless-sync-delay 0", // 5 s otherwise, before a replica gets its first byte
			"appendonly "+yesNo(s.config.AOF),
		)
		for _, user := range s.config.Users {
			lines = append(lines, "user "+user)
		}
	}
	return strings.Join(append(lines, s.config.Directives...), "\n") + "\n"
}

func (s *Server) start() error {
	binary, err := Find()
	if err != nil {
		return err
	}
	args := []string{s.path("redis.conf")}
	if s.config.sentinel {
		args = append(args, "--sentinel")
	}
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close()
	command := exec.Command(binary, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), s.config.Env...)
	p, err := startProcess(command)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.process = p
	if err := s.waitUntilReady(); err != nil {
		s.process.kill()
		return err
	}
	return nil
}

func (s *Server) waitUntilReady() error {
	return eventually(readyTimeout, func() error {
		if !s.process.running() {
			return fatal{fmt.Errorf("redistest: redis-server ended at its start: %s", tail(s.Log(), 1024))}
		}
		return s.answers()
	})
}

// answers sends a request in Redis's inline form, without logging in. A refusal is an
// answer too, but not that of a server that still reads its data. Only we use the socket;
// on the port, another process might answer.
func (s *Server) answers() error {
	conn, err := net.DialTimeout("unix", s.path("socket"), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(reply, "-LOADING") {
		return errors.New(strings.TrimSpace(reply))
	}
	return nil
}

// Addr returns the network and address that clients use, in the form of
// [net.Dial]: "tcp" with [Config.TCP], otherwise "unix".
func (s *Server) Addr() (network, address string) {
	if s.port != 0 {
		return "tcp", loopback(s.port)
	}
	return "unix", s.path("socket")
}

// URL returns a URL for [redis.ParseURL], including the default user's password.
func (s *Server) URL() string {
	return s.urlAt(s.Addr())
}

// urlAt is URL for a server that is reached at another address.
func (s *Server) urlAt(network, address string) string {
	u := url.URL{Scheme: "redis", Host: address}
	switch {
	case network == "unix":
		u = url.URL{Scheme: "unix", Path: address}
	case s.config.TLS:
		u.Scheme = "rediss"
	}
	if s.config.Password != "" {
		u.User = url.UserPassword("", s.config.Password)
	}
	return u.String()
}

// ioTimeout bounds a request without a deadline, which only a server that hangs reaches.
const ioTimeout = time.Minute

// Options returns the options of [Server.Client], for tests that change some: contexts
// bound I/O, and no request is retried behind the caller's back.
func (s *Server) Options() *redis.Options {
	network, address := s.Addr()
	return &redis.Options{
		Network:               network,
		Addr:                  address,
		Password:              s.config.Password,
		TLSConfig:             s.tlsConfig(),
		ContextTimeoutEnabled: true,
		DialTimeout:           ioTimeout,
		ReadTimeout:           ioTimeout,
		WriteTimeout:          ioTimeout,
		MaxRetries:            -1,
	}
}

// Client returns a new client with [Server.Options], closed at the end of t.
func (s *Server) Client(t TB) *redis.Client { return newClient(t, s.Options()) }

func newClient(t TB, options *redis.Options) *redis.Client {
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

// Pause stops the process (SIGSTOP): connections stay open and the kernel still accepts
// bytes, but the server does not answer.
func (s *Server) Pause() { s.process.signal(sigStop) }

// Resume continues a paused process.
func (s *Server) Resume() { s.process.signal(sigContinue) }

// Kill ends the process without warning (SIGKILL) and returns once it is gone. Data
// outside an append-only file are lost.
func (s *Server) Kill() { s.process.kill() }

// Restart kills the server if it still runs, and starts it anew on the same socket and
// port: empty, or with its data if [Config.AOF] is set.
func (s *Server) Restart(t TB) {
	t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		t.Fatalf("restart: %v", err)
	}
}

// Launch starts a killed server anew, as [Server.Restart] does.
func (s *Server) Launch() error { return s.start() }

// PID returns the id of the running process, or of the last one that ran.
func (s *Server) PID() int { return s.process.Pid }

// Log returns what the server has written to its log since its first start.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.path("log")) // without a file the log is empty
	return string(text)
}

// Close kills the server and removes its directory.
func (s *Server) Close() error {
	if s.process != nil {
		s.process.kill()
	}
	s.releasePorts()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// shortTempDir returns a new directory in which the path of a socket fits into
// sockaddr_un: 108 bytes on Linux, 104 on others, a final zero included.
func shortTempDir() (string, error) {
	const room = 104 - len("/redistest-0123456789/socket") - 1
	parent := os.TempDir()
	if len(parent) > room {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "redistest-")
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// tail returns the last n bytes of text, from the beginning of a line.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	_, rest, _ := strings.Cut(text[len(text)-n:], "\n")
	return cmp.Or(rest, text[len(text)-n:])
}
