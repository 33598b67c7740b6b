package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDISTEST_ORPHAN") != "" {
		startOrphan()
	}
	if line := os.Getenv("REDISTEST_LEAVE"); line != "" {
		startLeaving(line)
	}
	goleak.VerifyTestMain(tests{m}) // package testmain imports this one
}

// tests is a TestingM whose skipped tests are reported.
type tests struct{ goleak.TestingM }

func (t tests) Run() int { return Run(t.TestingM) }

func TestStart(t *testing.T) {
	for name, config := range map[string]Config{
		"unix socket":     {},
		"tcp":             {TCP: true},
		"password":        {Password: "p@ss:word/%"},
		"password on tcp": {TCP: true, Password: "p@ss:word/%"},
		"odd password":    {Password: `a "quoted" \\ one #`},
	} {
		t.Run(name, func(t *testing.T) {
			s := Start(t, config)
			client := s.Client(t)
			require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())

			options, err := redis.ParseURL(s.URL())
			require.NoError(t, err)
			require.Equal(t, "value", newClient(t, options).Get(t.Context(), "key").Val(), "the URL leads to the same server")
		})
	}
}

func TestTLS(t *testing.T) {
	s := Start(t, Config{TLS: true})
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	require.NoError(t, StartProxy(t, s).Client(t).Ping(t.Context()).Err(), "through a proxy too")

	options, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](newClient(t, options).Ping(t.Context()).Err())
	require.True(t, unknown, "nobody trusts the authority")
	options.TLSConfig = nil
	require.Error(t, newClient(t, options).Ping(t.Context()).Err(), "nothing but TLS is spoken")
}

func TestTLSWithClientCertificate(t *testing.T) {
	s := Start(t, Config{TLS: true, Directives: []string{"tls-auth-clients yes"}})
	require.Error(t, s.Client(t).Ping(t.Context()).Err())
	options := s.Options()
	_, certificate, key := s.certificateFiles()
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(t, err)
	options.TLSConfig.Certificates = []tls.Certificate{pair}
	require.NoError(t, newClient(t, options).Ping(t.Context()).Err())
}

func TestPasswordIsNeeded(t *testing.T) {
	s := Start(t, Config{Password: "secret"})
	options := s.Options()
	options.Password = ""
	require.ErrorContains(t, newClient(t, options).Ping(t.Context()).Err(), "NOAUTH")
}

func TestUsers(t *testing.T) {
	s := Start(t, Config{Users: []string{"alice on >secret ~lock:* +@all"}})
	options := s.Options()
	options.Username, options.Password = "alice", "secret"
	alice := newClient(t, options)
	require.NoError(t, alice.Set(t.Context(), "lock:a", "", 0).Err())
	require.ErrorContains(t, alice.Set(t.Context(), "other", "", 0).Err(), "NOPERM")
}

func TestDirectives(t *testing.T) {
	s := Start(t, Config{Directives: []string{"maxmemory 77mb", "appendonly yes"}})
	client := s.Client(t)
	require.Equal(t, strconv.Itoa(77<<20), client.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"])
	require.Equal(t, "yes", client.ConfigGet(t.Context(), "appendonly").Val()["appendonly"], "they win")
}

func TestNothingIsKept(t *testing.T) {
	client := Start(t, Config{}).Client(t)
	require.Equal(t, map[string]string{"save": ""}, client.ConfigGet(t.Context(), "save").Val())
	require.Equal(t, map[string]string{"appendonly": "no"}, client.ConfigGet(t.Context(), "appendonly").Val())
}

func TestDebugIsAllowed(t *testing.T) {
	require.NoError(t, Start(t, Config{}).Client(t).Do(t.Context(), "DEBUG", "SLEEP", 0).Err())
}

func TestBadDirective(t *testing.T) {
	Need(t)
	_, err := Launch(Config{Directives: []string{"no-such-directive 1"}})
	require.ErrorContains(t, err, "no-such-directive", "the server's own words")
}

func TestPauseAndResume(t *testing.T) {
	s := Start(t, Config{})
	client := s.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err())
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), impatient)
	defer cancel()
	timeout, ok := errors.AsType[net.Error](client.Ping(ctx).Err())
	require.True(t, ok && timeout.Timeout(), "%v", timeout)
	s.Resume()
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestPausedServerIsEnded(t *testing.T) {
	s := Start(t, Config{})
	s.Pause()
	require.NoError(t, s.Close())
	require.False(t, alive(s.PID()))
}

func TestRestart(t *testing.T) {
	for name, config := range map[string]Config{"empty": {}, "with its data": {AOF: true}, "on its port": {TCP: true}} {
		t.Run(name, func(t *testing.T) {
			s := Start(t, config)
			client, url := s.Client(t), s.URL()
			require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
			before := s.PID()
			s.Restart(t)
			require.NotEqual(t, before, s.PID())
			require.Equal(t, url, s.URL())
			require.Equal(t, config.AOF, client.Exists(t.Context(), "key").Val() == 1)
		})
	}
}

func TestKill(t *testing.T) {
	s := Start(t, Config{})
	client := s.Client(t)
	s.Kill()
	require.False(t, alive(s.PID()))
	require.Error(t, client.Ping(t.Context()).Err())
	require.Panics(t, s.Pause, "a dead server cannot be paused")
}

// No other server gets the port of a killed one: there, none answers, and it can start again.
func TestKilledServerKeepsItsPort(t *testing.T) {
	cluster := StartCluster(t, ClusterConfig{Masters: 1})
	s := cluster.Nodes[0]
	s.Kill()
	for _, number := range []int{s.port, s.busPort} {
		_, err := claimPort(number)
		require.Error(t, err, number)
	}
	s.Restart(t)
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
}

// Nor does a server of another kind lose its port while it is started again.
func TestFreeAddressIsKept(t *testing.T) {
	_, port, err := net.SplitHostPort(FreeAddress(t))
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	p, err := claimPort(number)
	if err == nil {
		p.release()
	}
	require.Error(t, err)
}

func TestCloseLeavesNothing(t *testing.T) {
	Need(t)
	s, err := Launch(Config{TCP: true})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is fine")
	require.False(t, alive(s.PID()))
	require.NoDirExists(t, s.dir)
}

// A server that crashes must not pass unnoticed.
func TestCrashFailsTheTest(t *testing.T) {
	Need(t)
	fake := &fakeTB{}
	fake.run(func() {
		s := Start(fake, Config{})
		require.NoError(t, s.process.Signal(syscall.SIGTERM))
		<-s.process.exited
	})
	require.Len(t, fake.errors, 1)
	require.Contains(t, fake.errors[0], "ended on its own")
	require.Contains(t, fake.logs, "SIGTERM", "the server's log")
}

func TestSocketPathIsShort(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp/"+strings.Repeat("long/", 40))
	dir, err := shortTempDir()
	require.NoError(t, err)
	defer os.Remove(dir)
	require.Less(t, len(dir+"/socket"), 104)
}

// Killing the process that runs the tests ends its servers.
func TestServersDieWithTheProcess(t *testing.T) {
	Need(t)
	if runtime.GOOS != "linux" {
		t.Log("no Pdeathsig on " + runtime.GOOS)
		return
	}
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), "REDISTEST_ORPHAN=1")
	out, err := test.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, test.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	defer os.RemoveAll(dir)
	server, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.True(t, alive(server))

	require.NoError(t, test.Process.Kill())
	require.Error(t, test.Wait())
	assert.Eventually(t, func() bool { return !alive(server) }, patient, time.Millisecond)
}

// startOrphan runs in the process of TestServersDieWithTheProcess.
func startOrphan() {
	s, err := Launch(Config{})
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, s.PID(), s.dir)
	select {} // until killed
}
