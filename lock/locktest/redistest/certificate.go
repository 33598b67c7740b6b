package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

// certificateFiles returns the PEM files of a server with [Config.TLS]: the authority to
// trust, and a certificate with its key, for the server and for clients that need one.
// They are removed with the server.
func (s *Server) certificateFiles() (authority, certificate, key string) {
	return s.path("ca.pem"), s.path("cert.pem"), s.path("key.pem")
}

// writeCertificates makes a new authority, and a certificate for 127.0.0.1 signed by it.
func (s *Server) writeCertificates() error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority := template(1, "redistest authority")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	leaf := template(2, "redistest")
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	s.trust = x509.NewCertPool()
	s.trust.AppendCertsFromPEM(pemBlock("CERTIFICATE", authorityDER))
	authorityFile, certificateFile, keyFile := s.certificateFiles()
	for _, file := range []struct {
		path, kind string
		der        []byte
	}{{authorityFile, "CERTIFICATE", authorityDER}, {certificateFile, "CERTIFICATE", leafDER}, {keyFile, "PRIVATE KEY", keyDER}} {
		if err := os.WriteFile(file.path, pemBlock(file.kind, file.der), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// tlsConfig is nil without [Config.TLS].
func (s *Server) tlsConfig() *tls.Config {
	if !s.config.TLS {
		return nil
	}
	return &tls.Config{RootCAs: s.trust, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}
