//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func TestMain(m *testing.M) {
	connect.Register(etcd)
	patient := func() {
		connect.ProbeTimeout = commandtest.Patience // all servers that are probed answer, or refuse
		if os.Getenv(impatient) == "" {
			connect.RequestTimeout = commandtest.Patience
		}
	}
	commandtest.Main(m, newCommand, patient, patient)
}

// impatient, set in the environment of a process that the tests start, gives its requests the
// command's own limit, which those to a server that does not answer exceed.
const impatient = "LEASEWHEEL_TEST_IMPATIENT"

// startEtcd starts a server that ends with t, and returns its address. etcd chooses no free ports
// of itself: others may take one meanwhile, so that it is started again. With TLS it has the
// certificate and the key in two files.
func startEtcd(t *testing.T, files ...string) string {
	t.Helper()
	path := os.Getenv("ETCD_SERVER")
	if path == "" {
		out, err := exec.Command("../../../../.ci/etcd").Output()
		require.NoError(t, err, "no etcd server: set ETCD_SERVER")
		path = strings.TrimSpace(string(out))
	}
	for begin := time.Now(); time.Since(begin) < commandtest.Patience; {
		address, peer, scheme, flags := redistest.FreeAddress(t), redistest.FreeAddress(t), "http://", []string(nil)
		env, args := []string{"LEASEWHEEL_STORE=etcd://" + address}, []string{"ls"}
		if files != nil {
			scheme, flags = "https://", []string{"--cert-file", files[0], "--key-file", files[1]}
			env, args = []string{"LEASEWHEEL_STORE=etcds://" + address}, []string{"ls", "--store-ca", files[0]}
		}
		server := exec.Command(path, append(flags, "--data-dir", t.TempDir(), "--listen-client-urls", scheme+address, "--advertise-client-urls", scheme+address,
			"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer,
			"--logger", "zap", "--log-level", "error")...)
		require.NoError(t, server.Start())
		exited := make(chan struct{})
		go func() {
			_ = server.Wait() // it is killed
			close(exited)
		}()
		t.Cleanup(func() {
			_ = server.Process.Kill()
			<-exited
		})
		for ; time.Since(begin) < commandtest.Patience && running(exited); time.Sleep(10 * time.Millisecond) {
			if listens(address) && commandtest.Call(t, env, args...).Wait() == exit.OK && running(exited) {
				return address
			}
		}
	}
	t.Fatal("no server of etcd answers")
	return ""
}

func running(exited <-chan struct{}) bool {
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// listens reports whether a server accepts connections.
func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// The lock of a command that runs is listed, watched, inspected and taken away; so it is under a
// prefix, which others do not see. The first host need not answer.
func TestCommandsOnEtcd(t *testing.T) {
	t.Parallel()
	address := startEtcd(t)
	env, apart := []string{"LEASEWHEEL_STORE=etcd://127.0.0.1:1," + address + "/apart"}, []string{"LEASEWHEEL_STORE=etcd://" + address}
	for _, kind := range []string{"--fair=false", "--fair", "--read", "--write"} {
		p := commandtest.Start(t, env, "run", kind, "--on-lost", "ignore", "nightly", "--", "sh", "-c", "echo begun; cat")
		require.Equal(t, "begun", p.Line())
		assert.Contains(t, commandtest.Ask(t, env, exit.OK, "ls"), "nightly")
		assert.Empty(t, commandtest.Ask(t, apart, exit.OK, "ls"))
		assert.Contains(t, commandtest.Ask(t, env, exit.OK, "inspect", "nightly"), "nightly")
		short := commandtest.Call(t, env, "run", "--ttl", "1500ms", "brief", "--", "true")
		assert.Equal(t, exit.Usage, short.Wait())
		short.RequireOneLine("a TTL of 1s, in whole seconds: the cluster's least is 2s")
		refused := commandtest.Call(t, env, "run", "-n", "--write", "nightly", "--", "true")
		assert.Equal(t, exit.NotAcquired, refused.Wait())
		watch := commandtest.Start(t, env, "watch", "--json")
		require.Contains(t, watch.Line(), "nightly")
		commandtest.Ask(t, env, exit.OK, "unlock", "--force", "nightly")
		require.NoError(t, p.Stdin.Close())
		p.Wait()
	}
}

// Shells complete this program, which hints name too, and not leasewheel.
func TestNamesItself(t *testing.T) {
	t.Parallel()
	commandtest.RequireNamesItself(t, "leasewheel-etcd")
}

// What etcd cannot do, and a URL that is wrong, are refused in one line, without the password.
func TestRefusals(t *testing.T) {
	t.Parallel()
	url := "etcd://me:" + commandtest.Secret + "@127.0.0.1:1"
	for what, c := range map[string]struct {
		code int
		says string
		url  string
		args []string
	}{
		"permits":     {exit.Usage, "has no clock", "etcd://127.0.0.1:1", []string{"run", "--permits", "3", "a", "--", "true"}},
		"a format":    {exit.Usage, "is no Redis", url, []string{"ls", "--format", "plain"}},
		"a queue":     {exit.Usage, "needs a server of Redis", url, []string{"queue", "stats", "a"}},
		"a doctor":    {exit.Usage, "examines no server of etcd", "etcd://127.0.0.1:1", []string{"doctor"}},
		"no host":     {exit.Usage, "is invalid", "etcd://me:" + commandtest.Secret + "@", []string{"ls"}},
		"no password": {exit.Usage, "a user and a password", "etcd://me@127.0.0.1", []string{"ls"}},
		"no TLS":      {exit.Usage, "need a URL for TLS", url, []string{"ls", "--store-server-name", "a"}},
		"a demo":      {exit.Usage, "needs a server of Redis", "etcd://127.0.0.1:1", []string{"demo", "--store", url}},
		"a bad port":  {exit.Usage, "is invalid", url + "x" + commandtest.Secret, []string{"ls"}},
		"port 65536":  {exit.Usage, "is invalid", url + ",127.0.0.1:65536", []string{"run", "-n", "a", "--", "true"}},
		"a parameter": {exit.Usage, "is invalid", url + "/?password=" + commandtest.Secret, []string{"ls"}},
		"a slash":     {exit.Usage, "is invalid", "etcd://me:12/" + commandtest.Secret + "@127.0.0.1:1", []string{"ls"}},
		"PostgreSQL":  {exit.Usage, "leasewheel-postgres", "postgres://127.0.0.1", []string{"ls"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := commandtest.Call(t, []string{"LEASEWHEEL_STORE=" + c.url}, c.args...)
			assert.Equal(t, c.code, p.Wait())
			p.RequireOneLine(c.says)
		})
	}
	for _, url := range []string{url, "etcd://127.0.0.1:1"} { // the first one's password is checked at once
		commandtest.RequireRefused(t, []string{impatient + "=1", "LEASEWHEEL_STORE=" + url}, "server 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused", "ls")
	}
}

// pemFiles returns the files of a certificate and of its key.
func pemFiles(t *testing.T, pair tls.Certificate) (certificate, key string) {
	t.Helper()
	text, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	file := func(kind string, text []byte) string {
		return commandtest.PrivateFile(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text})))
	}
	return file("CERTIFICATE", pair.Certificate[0]), file("PRIVATE KEY", text)
}

// run does not wait for what stays wrong: a certificate that one side does not accept, TLS on one side alone.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	mutual := httptest.NewUnstartedServer(nil)
	mutual.TLS, mutual.EnableHTTP2 = &tls.Config{ClientAuth: tls.RequireAnyClientCert}, true
	mutual.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	mutual.StartTLS()
	t.Cleanup(mutual.Close)
	ca, key := pemFiles(t, mutual.TLS.Certificates[0])
	plain, secure := startEtcd(t), startEtcd(t, ca, key)
	for what, c := range map[string]struct {
		url, advice string
		flags       []string
	}{
		"an unknown authority":    {"etcds://" + secure, "is not trusted: name its authority by --store-ca", nil},
		"no client's certificate": {"etcds://" + mutual.Listener.Addr().String(), "it may want a client's certificate", []string{"--store-ca", ca}},
		"TLS at the server":       {"etcd://" + secure, "use etcds:// instead of etcd://", nil},
		"TLS at the client":       {"etcds://" + plain, "use etcd:// instead of etcds://", nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			commandtest.RequireRefused(t, []string{impatient + "=1", "LEASEWHEEL_STORE=" + c.url}, c.advice, slices.Concat([]string{"run"}, c.flags, []string{"a", "--", "true"})...)
		})
	}
}

// repeated sends a request until it is answered: a member that stood still ends by itself what it was sent
// some seconds before.
func repeated(t *testing.T, send func() error) {
	t.Helper()
	var err error
	for begin := time.Now(); ; {
		err = send()
		if failure, known := errors.AsType[rpctypes.EtcdError](err); !known || failure.Code() != codes.Unavailable || time.Since(begin) > commandtest.Patience {
			break
		}
	}
	require.NoError(t, err)
}

// A certificate's authority comes from a flag, and so does the password of a user.
func TestCredentials(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	ca, key := pemFiles(t, web.TLS.Certificates[0])
	url := "etcds://" + startEtcd(t, ca, key)
	config, _, err := parse(url)
	require.NoError(t, err)
	config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	config.TLS.RootCAs.AddCert(web.Certificate())
	client, err := clientv3.New(config)
	require.NoError(t, err)
	defer client.Close()
	repeated(t, func() error {
		_, err := client.UserAdd(t.Context(), "root", commandtest.Secret)
		if errors.Is(err, rpctypes.ErrUserAlreadyExist) { // an attempt without an answer has done it
			return nil
		}
		return err
	})
	repeated(t, func() error {
		_, err := client.UserGrantRole(t.Context(), "root", "root")
		return err
	})
	repeated(t, func() error {
		_, err := client.AuthEnable(t.Context())
		return err
	})
	right, wrong := commandtest.PrivateFile(t, commandtest.Secret+"\n"), commandtest.PrivateFile(t, "wrong")
	for what, c := range map[string]struct {
		code  int
		flags []string
	}{
		"file":           {exit.OK, []string{"--store-user", "root", "--store-password-file", right}},
		"command":        {exit.OK, []string{"--store-user", "root", "--store-password-command", "cat " + right}},
		"wrong password": {exit.Unavailable, []string{"--store-user", "root", "--store-password-file", wrong}},
		"no user":        {exit.Usage, []string{"--store-password-file", right}},
		"no password":    {exit.Unavailable, nil},
	} {
		t.Run(what, func(t *testing.T) {
			var p *commandtest.Process
			commandtest.Eventually(t, "answered", func() bool {
				p = commandtest.Start(t, []string{"LEASEWHEEL_STORE=" + url}, slices.Concat([]string{"run", "--store-ca", ca}, c.flags, []string{"a", "--", "true"})...)
				return p.Wait() == c.code || !strings.Contains(p.Stderr.String(), rpctypes.ErrTimeout.Error())
			})
			assert.Equal(t, c.code, p.Wait())
			assert.NotContains(t, p.Stderr.String(), commandtest.Secret)
		})
	}
}

// A password that changes ends the tokens that clients have. They ask for it again, and get another one.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, member := grpc.NewServer(), &member{}
	etcdserverpb.RegisterAuthServer(server, member)
	etcdserverpb.RegisterKVServer(server, member)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		assert.NoError(t, <-served)
	}()
	asked := 0
	member.change(commandtest.Secret)
	opened, err := openEtcd("etcd://root@"+listener.Addr().String(), connect.Access{Credentials: func(context.Context) (username, password string, err error) {
		asked++
		return "", member.password(), nil
	}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, opened.Close()) }()
	assert.Equal(t, 1, asked, "the first token is that of the start's password")
	request := func() error {
		_, err := opened.Store.Acquire(t.Context(), &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "me:1", TTL: time.Minute, Count: 1})
		return err
	}
	for _, secret := range []string{commandtest.Secret, commandtest.Secret + "-2", commandtest.Secret + "-3"} {
		member.change(secret)
		require.ErrorContains(t, request(), accepted)
	}
	assert.Equal(t, 3, asked)
}

// accepted is the answer of a member to a request with a token of the present password.
const accepted = "the token is accepted"

// member is one of etcd that has a user root, and does nothing for it.
type member struct {
	etcdserverpb.UnimplementedAuthServer
	etcdserverpb.UnimplementedKVServer
	current atomic.Pointer[string]
}

func (m *member) change(password string) { m.current.Store(&password) }

func (m *member) password() string { return *m.current.Load() }

func (m *member) Authenticate(_ context.Context, r *etcdserverpb.AuthenticateRequest) (*etcdserverpb.AuthenticateResponse, error) {
	if r.Name != "root" || r.Password != m.password() {
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	return &etcdserverpb.AuthenticateResponse{Token: "token of " + r.Password}, nil
}

func (m *member) Range(ctx context.Context, _ *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return nil, m.answer(ctx)
}

func (m *member) Txn(ctx context.Context, _ *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return nil, m.answer(ctx)
}

func (m *member) answer(ctx context.Context) error {
	of, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(of.Get(rpctypes.TokenFieldNameGRPC), []string{"token of " + m.password()}) {
		return rpctypes.ErrGRPCAuthOldRevision
	}
	return status.Error(codes.InvalidArgument, accepted)
}
