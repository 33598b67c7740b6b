//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Every failure of a server to grant the lock is one clear line, exit code 69, and no
// password.
func TestRunServerTrouble(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{
		TCP: true, Password: "open sesame",
		Users: []string{"reader on >" + commandtest.Secret + " ~* &* +@read +@connection"},
	})
	_, address := server.Addr()
	client, ctx := server.Client(t), commandtest.Bounded(t)
	require.NoError(t, client.Set(ctx, "text", "no lock", 0).Err())

	replica := redistest.Start(t, redistest.Config{Directives: []string{"replicaof 127.0.0.1 1", "replica-serve-stale-data yes"}})

	encrypted := redistest.Start(t, redistest.Config{TLS: true, Password: commandtest.Secret})
	_, port := encrypted.Addr()
	mutual := redistest.Start(t, redistest.Config{TLS: true, Directives: []string{"tls-auth-clients yes"}})
	_, mutualPort := mutual.Addr()

	for name, test := range map[string]struct {
		url, lock, says string
	}{
		"TLS there":         {"redis://:" + commandtest.Secret + "@" + port, "job", "server " + port + " speaks TLS on this port: use rediss://"},
		"mutual TLS there":  {"redis://:" + commandtest.Secret + "@" + mutualPort, "job", "speaks TLS on this port: use rediss://"},
		"no TLS by cluster": {"rediss-cluster://:" + commandtest.Secret + "@" + address, "job", "speaks no TLS on this port: use redis://"},
		"TLS by cluster":    {"redis-cluster://:" + commandtest.Secret + "@" + port, "job", "speaks TLS on this port: use rediss://"},
		"unreachable":       {"redis://:" + commandtest.Secret + "@127.0.0.1:1", "job", "connection refused"},
		"no such host":      {"redis://:" + commandtest.Secret + "@no-such-host.invalid", "job", "no-such-host.invalid"},
		"no socket":         {"unix:///no/such/socket", "job", "no such file"},
		"wrong password":    {"redis://:" + commandtest.Secret + "@" + address, "job", "check the user and the password"},
		"no password":       {"redis://" + address, "job", "give a user and a password"},
		"no permission":     {"redis://reader:" + commandtest.Secret + "@" + address, "job", "lacks a permission"},
		"read-only replica": {replica.URL(), "job", "read-only replica"},
		"wrong kind of key": {server.URL(), "text", "is a string without a TTL, not a lock"},
		"no TLS there":      {"rediss://:" + commandtest.Secret + "@" + address, "job", "server " + address + " speaks no TLS on this port: use redis://"},
	} {
		for _, flags := range [][]string{{"-n"}, {"-w", "100ms"}} {
			t.Run(name+" "+flags[0], func(t *testing.T) {
				t.Parallel() // most of it is waiting for the server
				p := commandtest.Call(t, []string{connect.URLVariable + "=" + test.url}, runLock(test.lock, sh("echo ran"), flags...)...)
				assert.Equal(t, exit.Unavailable, p.Wait())
				p.RequireOneLine(test.says)
				assert.Empty(t, p.Stdout.String())
			})
		}
	}
}

// The other commands report the same for a server that uses TLS, or does not.
func TestTLSMismatches(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Config{TCP: true})
	encrypted := redistest.Start(t, redistest.Config{TLS: true})
	_, plainPort := plain.Addr()
	_, encryptedPort := encrypted.Addr()
	for _, args := range [][]string{
		{"ls"}, {"inspect", "job"}, {"unlock", "--force", "job"}, {"demo"}, {"bench", "lock"}, {"bench", "renewal"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel() // most of it is waiting for the server
			p := commandtest.Call(t, nil, append(args, "--store", "redis://"+encryptedPort)...)
			assert.Equal(t, exit.Unavailable, p.Wait())
			p.RequireOneLine("server " + encryptedPort + " speaks TLS on this port: use rediss://")
			p = commandtest.Call(t, nil, append(args, "--store", "rediss://"+plainPort)...)
			assert.Equal(t, exit.Unavailable, p.Wait())
			p.RequireOneLine("server " + plainPort + " speaks no TLS on this port: use redis://")
		})
	}
}

// Another program's value with a TTL is worth waiting for, as another library's lock is.
func TestRunWaitsForAForeignLock(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client, ctx := server.Client(t), commandtest.Bounded(t)
	require.NoError(t, client.Set(ctx, "job", "foreign", time.Minute).Err())
	p := commandtest.Call(t, env, runLock("job", sh("true"), "-n")...)
	assert.Equal(t, exit.NotAcquired, p.Wait())
	p.RequireOneLine("another family of locks")

	p = commandtest.Start(t, env, runLock("job", sh("echo mine"), "-v")...)
	p.AwaitError("waiting for lock")
	require.NoError(t, client.PExpire(ctx, "job", time.Millisecond).Err())
	assert.Equal(t, "mine", p.Line())
	assert.Equal(t, 0, p.Wait())
}

// run waits a while for a server that starts late.
func TestRunWaitsForAServerThatRestarts(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	server.Kill()
	p := commandtest.Start(t, env, runLock("job", sh("echo ran"))...)
	server.Restart(t)
	assert.Equal(t, "ran", p.Line())
	assert.Equal(t, 0, p.Wait())
}

// authority makes certificates for the TLS tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.cert, a.key = template, key
	a.file, _ = a.issue("ca", template)
	return a
}

// issue writes a certificate and its key to files, and returns their names.
func (a *authority) issue(name string, template *x509.Certificate) (certFile, keyFile string) {
	key := a.key
	if template != a.cert {
		var err error
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(a.t, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	require.NoError(a.t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

func (a *authority) leaf(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// serveTLS puts TLS in front of server and returns the address.
func (a *authority) serveTLS(server *redistest.Server, clients bool) string {
	return a.serveTLSAs(server, clients, a.leaf("server"), nil)
}

// serveTLSAs is serveTLS with a certificate. asked gets the name that each client asks for.
func (a *authority) serveTLSAs(server *redistest.Server, clients bool, leaf *x509.Certificate, asked func(name string)) string {
	certFile, keyFile := a.issue("server", leaf)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(a.t, err)
	config := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if asked != nil {
			asked(hello.ServerName)
		}
		return &pair, nil
	}}
	if clients {
		text, err := os.ReadFile(a.file)
		require.NoError(a.t, err)
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		require.True(a.t, config.ClientCAs.AppendCertsFromPEM(text))
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(a.t, err)
	network, address := server.Addr()
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial(network, address)
			if err != nil {
				from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
				relays.Go(func() {
					io.Copy(way[0], way[1]) //nolint:errcheck // either end may close
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	a.t.Cleanup(func() {
		listener.Close()
		relays.Wait()
	})
	return listener.Addr().String()
}

func TestRunByTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	ours, theirs := newAuthority(t), newAuthority(t)
	url := "rediss://:" + commandtest.Secret + "@" + ours.serveTLS(server, false)
	mutual := "rediss://:" + commandtest.Secret + "@" + ours.serveTLS(server, true)
	old := ours.leaf("server")
	old.NotAfter = time.Now().Add(-time.Minute)
	expired := "rediss://:" + commandtest.Secret + "@" + ours.serveTLSAs(server, false, old, nil)
	cert, key := ours.issue("client", ours.leaf("client"))
	require.NoError(t, server.Client(t).Do(commandtest.Bounded(t), "acl", "setuser", "default", "on", ">"+commandtest.Secret).Err())

	for name, test := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"our authority":         {[]string{"--store", url, "--store-ca", ours.file}, 0, ""},
		"client certificate":    {[]string{"--store", mutual, "--store-ca", ours.file, "--store-cert", cert, "--store-key", key}, 0, ""},
		"unknown authority":     {[]string{"--store", url}, exit.Unavailable, "--store-ca"},
		"another authority":     {[]string{"--store", url, "--store-ca", theirs.file}, exit.Unavailable, "certificate"},
		"expired":               {[]string{"--store", expired, "--store-ca", ours.file}, exit.Unavailable, "renew it"},
		"no client certificate": {[]string{"--store", mutual, "--store-ca", ours.file}, exit.Unavailable, "--store-cert"},
		"no verification":       {[]string{"--store", url + "?skip_verify=true"}, exit.Usage, "skip_verify is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := runLock(name, sh("exit 0"), append(test.flags, "-n")...)
			limit := "=1m"
			if test.code != 0 {
				limit = "=10s" // it is tried for as long
			}
			if test.code == exit.Unavailable {
				commandtest.RequireRefused(t, []string{requestsTake + limit}, test.says, args...)
				return
			}
			p := commandtest.Start(t, []string{requestsTake + limit}, args...)
			assert.Equal(t, test.code, p.Wait())
			if test.code == 0 {
				assert.Empty(t, p.Stderr.String())
				return
			}
			p.RequireOneLine(test.says)
		})
	}
}
