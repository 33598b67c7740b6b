package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// probeTimeout bounds the request that finds out whether a port speaks TLS.
const probeTimeout = time.Second

// mismatchError says that a server does not speak as its URL says it does.
type mismatchError struct {
	address string
	advice  string
	cause   error
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("server %s %s (%v)", e.address, e.advice, e.cause)
}

func (e *mismatchError) Unwrap() error { return e.cause }

// mismatch returns a *mismatchError if err says that no server answered, and one of
// them speaks TLS although its URL says otherwise, or the reverse. Such a server
// either closes the connection or is silent, so it is asked the other way. No secret
// is sent. Otherwise mismatch returns err.
func (n nodes) mismatch(ctx context.Context, err error) error {
	if !errors.Is(err, lock.ErrUnavailable) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, server := range n {
		if advice := server.probe(ctx); advice != "" {
			return &mismatchError{server.address, advice, err}
		}
	}
	return err
}

// probe says what is wrong with the scheme of a server's URL, or nothing.
func (s *server) probe(ctx context.Context) string {
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

// speaksPlain reports whether a server answers PING without TLS, be it by a refusal.
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

// speaksTLS reports whether a server takes part in a TLS handshake. Its certificate
// does not matter: nothing is sent to it.
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

// untrusted reports whether an error says that one side does not accept the other's
// certificate, which does not pass by itself.
func untrusted(err error) bool {
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
