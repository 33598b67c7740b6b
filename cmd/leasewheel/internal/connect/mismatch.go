package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
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
// tries the other way. It sends no secret. Otherwise it returns err, with the flags to see if the
// credentials were refused.
func (n Servers) Mismatch(ctx context.Context, err error) error {
	certificate, authority := "--store-cert and --store-key", "name its authority by --store-ca, or the name in it by --store-server-name"
	for _, s := range n {
		if s.urlTLS != "" {
			certificate, authority = s.urlTLS+" in its URL", "see "+s.urlTLS+" in its URL"
		}
	}
	if errors.Is(err, lock.ErrUnavailable) {
		ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
		defer cancel()
		for _, s := range n {
			advice, reason := s.probe(ctx)
			if reason != nil {
				err = fmt.Errorf("%w: %w", reason, err)
			}
			if advice != "" {
				return &MismatchError{s.Address, advice, err}
			}
		}
	}
	switch {
	case refusedByTLS(err):
		return &MismatchError{n.Address(), "refuses the connection: it may want a client's certificate, see " + certificate, err}
	case outdated(err):
		return &MismatchError{n.Address(), "has a certificate that is not valid now: renew it, or correct the clock of this machine", err}
	case Untrusted(err):
		return &MismatchError{n.Address(), "has a certificate that is not trusted: " + authority, err}
	case errors.Is(err, redisstore.ErrAuth):
		flags := "--store-user and --store-password-file"
		if slices.ContainsFunc(n, func(s *Server) bool { return strings.Contains(s.url, "-sentinel://") }) {
			flags += ", of sentinels --store-sentinel-user and --store-sentinel-password-file"
		}
		return fmt.Errorf("%w: see %s", err, flags)
	}
	return err
}

// probe returns advice on the scheme of a server's URL, or nothing; and why the server cannot be
// reached, if its store's errors do not contain that.
func (s *Server) probe(ctx context.Context) (advice string, reason error) {
	if s.other.Probe != nil {
		return s.other.Probe(ctx)
	}
	u, _ := url.Parse(s.url)
	if u == nil || u.Host == "" {
		return "", nil // a socket
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "6379")
	}
	if !byTLS(s.url) {
		if SpeaksTLS(ctx, address) {
			advice = "speaks TLS on this port: use rediss:// instead of redis://"
		}
	} else if first, err := Greet(ctx, address, nil, "PING\r\n"); err == nil && (first == '+' || first == '-') {
		advice = "speaks no TLS on this port: use redis:// instead of rediss://, or the server's port for TLS"
	}
	return advice, nil
}

// Greet sends hello to a server, by TLS unless config is nil, and returns the first byte of its
// answer. Without a hello it only connects.
func Greet(ctx context.Context, address string, config *tls.Config, hello string) (byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	stream := io.ReadWriter(conn)
	if config != nil {
		config = config.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		stream = tls.Client(conn, config)
	}
	var answer [1]byte
	if _, err = io.WriteString(stream, hello); err == nil && hello != "" {
		_, err = io.ReadFull(stream, answer[:])
	}
	return answer[0], err
}

// SpeaksTLS reports whether a server takes part in a TLS handshake. Its certificate does
// not matter: no data are sent to it.
func SpeaksTLS(ctx context.Context, address string) bool {
	_, err := Greet(ctx, address, &tls.Config{InsecureSkipVerify: true}, "") //nolint:gosec // see above
	return err == nil || refusedByTLS(err)
}

// refusedByTLS reports whether an error is a TLS alert of the server's.
func refusedByTLS(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// outdated reports whether a certificate has expired, or is not valid yet.
func outdated(err error) bool {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok && invalid.Reason == x509.Expired
}

// Untrusted reports whether one side does not accept the other's certificate, which is a
// permanent error.
func Untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || refusedByTLS(err)
}
