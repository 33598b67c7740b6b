package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client certificate that is renewed is presented by the next connection. One that cannot be read fails
// it, with the flag's name.
func TestClientCertificateRotates(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	flags := ConnectionFlags{Cert: filepath.Join(folder, "client.crt"), Key: filepath.Join(folder, "client.key")}
	issue := func(serial int64) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		require.NoError(t, err)
		text, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(flags.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
		require.NoError(t, os.WriteFile(flags.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600))
	}
	issue(1)
	config, err := flags.tlsConfig()
	require.NoError(t, err)
	config.InsecureSkipVerify = true // the server's certificate does not matter here
	own, err := flags.certificate(nil)
	require.NoError(t, err)
	connect := func() (serial int64, err error) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		shown := make(chan int64, 1)
		go func() {
			defer close(shown)
			accepted := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*own}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12})
			if accepted.Handshake() == nil {
				shown <- accepted.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
			}
		}()
		err = tls.Client(client, config).HandshakeContext(t.Context())
		if err != nil {
			client.Close()
		}
		return <-shown, err
	}
	for serial := range int64(3) {
		issue(serial + 1)
		presented, err := connect()
		require.NoError(t, err)
		assert.Equal(t, serial+1, presented)
	}
	require.NoError(t, os.Remove(flags.Key))
	_, err = connect()
	require.ErrorContains(t, err, "--store-cert: ")
}
