package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/leasewheel/leasewheel/lock"
)

// MismatchError reports that a server's use of TLS differs from its URL and the flags.
type MismatchError struct {
	address string
	advice  string
	cause   error
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("server %s %s (%v)", e.address, e.advice, e.cause)
}

func (e *MismatchError) Unwrap() error { return e.cause }

// Mismatch returns a *MismatchError if err reports that one side does not accept the other's
// certificate; or that no server answered, and one of them uses TLS although its URL does
// not, or the reverse. Such a server closes the connection or does not answer, so mismatch
// tries the other way. It sends no secret. Otherwise it returns err.
func (n Servers) Mismatch(ctx context.Context, err error) error {
	certificate, authority := "--store-cert and --store-key", "name its authority by --store-ca, or the name in it by --store-server-name"
	for _, s := range n {
		if s.urlTLS != "" {
			certificate, authority = s.urlTLS+" in its URL", "see "+s.urlTLS+" in its URL"
		}
	}
	switch {
	case refusedByTLS(err):
		return &MismatchError{n.Address(), "refuses the connection: it may want a client's certificate, see " + certificate, err}
	case Untrusted(err):
		return &MismatchError{n.Address(), "has a certificate that is not trusted: " + authority, err}
	case !errors.Is(err, lock.ErrUnavailable):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	for _, server := range n {
		if advice := server.probe(ctx); advice != "" {
			return &MismatchError{server.Address, advice, err}
		}
	}
	return err
}

// probe returns advice on the scheme of a server's URL, or nothing.
func (s *Server) probe(ctx context.Context) string {
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" {
		return "" // a socket
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "6379")
	}
	switch {
	case byTLS(s.url) && speaksPlain(ctx, address):
		return "speaks no TLS on this port: use redis:// instead of rediss://, or the server's port for TLS"
	case !byTLS(s.url) && speaksTLS(ctx, address):
		return "speaks TLS on this port: use rediss:// instead of redis://"
	}
	return ""
}

// speaksPlain reports whether a server answers PING without TLS, even by a refusal.
func speaksPlain(ctx context.Context, address string) bool {
	conn, err := dialProbe(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var answer [1]byte
	_, err = io.ReadFull(conn, answer[:])
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// speaksTLS reports whether a server takes part in a TLS handshake. Its certificate does
// not matter: no data are sent to it.
func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dialProbe(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // see above
	return err == nil || refusedByTLS(err)
}

// refusedByTLS reports whether an error is a TLS alert of the server's.
func refusedByTLS(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// Untrusted reports whether one side does not accept the other's certificate, which is a
// permanent error.
func Untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || refusedByTLS(err)
}

func dialProbe(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	return conn, err
}
