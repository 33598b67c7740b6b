// Package connect opens the servers that a command line names: by URLs and credentials,
// with the settings of the store of locks, and with limits of requests.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/filestore"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// URLVariable is the environment variable that names the server if no flag does.
const URLVariable = "LEASEWHEEL_STORE"

// noServer returns the error of a command line that names no server.
func noServer() error {
	reason := ""
	if _, set := os.LookupEnv(URLVariable); set {
		reason = URLVariable + " is empty, as in a command of leasewheel run without --keep-store; "
	}
	return errors.New("no server: " + reason + "name it with --store URL, --store-file FILE or " + URLVariable)
}

// Flags name the Redis server, or several of them, and how to connect to them; or the folder of
// locks that need none.
type Flags struct {
	URLs []string // their passwords show in the process list; file and the environment hide them
	File string   // contains the URLs
	ConnectionFlags
	Logger *slog.Logger // of the connections; nil: nothing is logged

	folder folderFlags
}

// Register registers the flags.
func (s *Flags) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.URLs, "store", nil, "`URL` of the server (default: $"+URLVariable+")")
	flags.StringVar(&s.File, "store-file", "", "read the URL from this `file`, which may be private to this user")
	flags.StringVar(&s.User, "store-user", "", "`NAME` of the user whose password the next two flags give (default: the URL's)")
	flags.StringVar(&s.PasswordFile, "store-password-file", "", "read the password from this `file`, again for each connection")
	flags.StringVar(&s.PasswordCommand, "store-password-command", "", "run this `LINE` with /bin/sh for each connection; it prints the password")
	flags.StringVar(&s.SentinelUser, "store-sentinel-user", "", "`NAME` of the user at the sentinels (redis-sentinel://)")
	flags.StringVar(&s.SentinelPasswordFile, "store-sentinel-password-file", "", "read the sentinels' password from this `file` (redis-sentinel://)")
	flags.StringVar(&s.CA, "store-ca", "", "trust the certificate authorities in this PEM `file` (rediss://)")
	flags.StringVar(&s.Cert, "store-cert", "", "present the client certificate in this PEM `file`, read again for each connection (rediss://)")
	flags.StringVar(&s.Key, "store-key", "", "key of the client certificate, a PEM `file`")
	flags.StringVar(&s.ServerName, "store-server-name", "", "`NAME` that the server's certificate must have, and that is sent to it (default: the server's host)")
	share(flags, "store", "store-file", "store-user", "store-password-file", "store-password-command", "store-sentinel-user",
		"store-sentinel-password-file", "store-ca", "store-cert", "store-key", "store-server-name")
}

// sharedFlag annotates the flags of the server and of the store, which most commands have.
const sharedFlag = "leasewheel_shared"

func share(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, sharedFlag, nil) // fails for a flag that does not exist
	}
}

// Shared reports whether a flag is one of the server or of the store.
func Shared(f *pflag.Flag) bool {
	_, shared := f.Annotations[sharedFlag]
	return shared
}

// resolve returns the URLs of the flags, or else those in fallback, of the environment.
// It returns none if neither names a server. White space separates several URLs: a comma
// may be part of a password.
func (s *Flags) resolve(fallback string) ([]string, error) {
	switch {
	case len(s.URLs) > 0 && s.File != "":
		return nil, errors.New("--store and --store-file exclude each other")
	case s.File != "":
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("--store-file: %w", err)
		}
		urls := strings.Fields(string(text))
		if len(urls) == 0 {
			return nil, fmt.Errorf("--store-file %s is empty; it must contain the server's URL", s.File)
		}
		return urls, nil
	case len(s.URLs) > 0:
		return s.URLs, nil
	}
	return strings.Fields(fallback), nil
}

// ResolveOne is resolve for commands that use one server. The URL is empty if there is
// none.
func (s *Flags) ResolveOne(fallback string) (string, error) {
	urls, err := s.resolve(fallback)
	switch {
	case err != nil || len(urls) == 0:
		return "", err
	case len(urls) > 1:
		return "", fmt.Errorf("%d servers: this command uses one", len(urls))
	}
	return urls[0], nil
}

// Server is a connection to the Redis server and the store of locks upon it.
type Server struct {
	Client redis.UniversalClient // nil: it is no Redis
	Store  *redisstore.Store     // nil: it is no Redis
	files  *filestore.Store      // nil: the locks are not in files
	other  Opened                // its store is nil: the locks are on Redis, or in files
	// Engine is the scheme of another engine's URL. It is empty for Redis and for files.
	Engine string
	urlTLS string // Engine.TLS
	prefix string // of the locks' keys
	url    string // a secret
	// address is the host and port, or a socket's path. It is no secret, unlike the URL.
	Address string
}

// Open returns the server that the flags or fallback name. It sends no request yet. No
// error contains a password.
func (s *Flags) Open(fallback string, c redisstore.Config) (*Server, error) {
	rawURL, err := s.ResolveOne(fallback)
	if err != nil {
		return nil, err
	}
	if rawURL == "" {
		return nil, noServer()
	}
	return s.connect(rawURL, c)
}

// LogTo directs the log of all connections of this process. Tests run commands side by side.
var LogTo = redisstore.LogTo

// connect returns the Redis server with a URL.
func (s *Flags) connect(rawURL string, c redisstore.Config) (*Server, error) {
	if e, known, err := engineOf(rawURL); err != nil {
		return nil, err
	} else if known {
		return nil, fmt.Errorf("this command needs a server of Redis or Valkey, not %s://", e.Schemes[0])
	}
	LogTo(s.Logger)
	config, err := s.clientConfig(rawURL)
	if err != nil {
		return nil, err
	}
	client, err := redisstore.Dial(rawURL, config)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(client, c)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Server{Client: client, Store: store, prefix: c.Prefix, url: rawURL, Address: addressOf(rawURL)}, nil
}

// clientConfig returns the configuration of a URL's client.
func (c *ConnectionFlags) clientConfig(rawURL string) (config redisstore.ClientConfig, err error) {
	if err = c.validate(rawURL); err != nil {
		return config, err
	}
	if config.TLS, err = c.tlsConfig(); err != nil {
		return config, err
	}
	if c.SentinelPasswordFile != "" {
		config.SentinelUsername = c.SentinelUser
		if config.SentinelPassword, err = PasswordFromFile("--store-sentinel-password-file", c.SentinelPasswordFile); err != nil {
			return config, err
		}
	}
	config.Credentials, err = c.source()
	return config, err
}

// byTLS reports whether a URL asks for TLS.
func byTLS(rawURL string) bool {
	return strings.HasPrefix(rawURL, "rediss") || strings.HasPrefix(rawURL, "valkeys") || strings.HasPrefix(rawURL, "etcds")
}

// Name returns the server's name and version, as far as it reports them.
func (s *Server) Name(ctx context.Context) string {
	info := s.Client.InfoMap(ctx, "server").Val()["Server"]
	word := func(field string) string {
		if text := info[field]; printable.MatchString(text) {
			return text
		}
		return ""
	}
	name := cmp.Or(word("server_name"), "redis") // Valkey has a name, and its own version
	return strings.TrimSpace(name + " " + cmp.Or(word(name+"_version"), word("redis_version")))
}

// printable is a name or a version that a server may report.
var printable = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

// addressOf returns the address in a URL that redisstore.Dial has accepted.
func addressOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "of an unknown address" // such a URL is not accepted
	}
	return cmp.Or(u.Host, u.Path)
}

// Locks returns the store of the locks.
func (s *Server) Locks() driver.Store {
	switch {
	case s.files != nil:
		return s.files
	case s.other.Store != nil:
		return s.other.Store
	}
	return s.Store
}

// Close closes the store and its client.
func (s *Server) Close() error {
	switch {
	case s.files != nil:
		return s.files.Close()
	case s.other.Store != nil:
		return s.other.Close()
	}
	return errors.Join(s.Store.Close(), s.Client.Close())
}

// tlsConfig returns the TLS configuration of the flags, or nil if none is about
// TLS.
func (c *ConnectionFlags) tlsConfig() (*tls.Config, error) {
	if c.CA+c.Cert+c.Key+c.ServerName == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("--store-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--store-ca %s: it contains no PEM certificate", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("--store-cert and --store-key belong together")
	}
	if c.Cert != "" {
		if _, err := c.certificate(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = c.certificate
	}
	return config, nil
}

// certificate reads the client certificate, for each connection: it is renewed while a lock is held.
func (c *ConnectionFlags) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("--store-cert: %w", err)
	}
	return &pair, nil
}
