package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasewheel/leasewheel/lock/internal/logging"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// ErrClient is the error for a client whose options break a lock's promises. The error
// that wraps it names the option and its right value.
var ErrClient = errors.New("redisstore: unfit client")

// ofSentinels is the Addr of a client that redis.NewFailoverClient has made.
const ofSentinels = "FailoverClient"

// inspect refuses a client that cannot keep a lock's promises.
func inspect(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			o := c.Options()
			if err := bounded(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout); err != nil {
				return err
			}
			if o.Addr == ofSentinels && (o.ReadTimeout == 0 || o.ReadTimeout >= o.DialTimeout) {
				return fmt.Errorf("%w: after a failover it would ask for ever a sentinel that hangs: set ReadTimeout (read_timeout in a URL) below DialTimeout, or leave both out and use Open", ErrClient)
			}
			return nil
		}
	case *redis.ClusterClient:
		if c != nil {
			o := c.Options()
			switch {
			case o.MaxRedirects < 1:
				return fmt.Errorf("%w: it follows no redirects, so it cannot reach a lock whose slot has moved: leave ClusterOptions.MaxRedirects at 0 (which means 3) or set it to 1 or more", ErrClient)
			case o.ReadOnly && o.ClusterSlots == nil: // its connections are in READONLY mode
				return fmt.Errorf("%w: a former master would answer with old data instead of a redirect: leave ReadOnly, RouteByLatency and RouteRandomly of ClusterOptions unset", ErrClient)
			}
			return bounded(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
		}
	case *redis.Ring:
		return fmt.Errorf("%w: a redis.Ring sends a key to another server when one is down, and then two clients hold one lock: use a single server, sentinel, a cluster or a quorum of stores", ErrClient)
	}
	return fmt.Errorf("%w: %T cannot be inspected: pass a *redis.Client or a *redis.ClusterClient, or use Open", ErrClient, client)
}

// bounded refuses options by which requests do not end with their contexts.
func bounded(contextTimeoutEnabled bool, read, write time.Duration) error {
	const unbounded = "so an unresponsive server would block a request after its lease has ended"
	switch {
	case !contextTimeoutEnabled:
		return fmt.Errorf("%w: it ignores deadlines, %s: set ContextTimeoutEnabled: true in its options, or use Open", ErrClient, unbounded)
	case min(read, write) < 0: // -2 in the options: go-redis then sets no deadline on a connection
		return fmt.Errorf("%w: it sets no deadlines, %s: leave ReadTimeout and WriteTimeout at 0, or set them to -1 for no limit but the context's", ErrClient, unbounded)
	}
	return nil
}

// Open makes a client from a URL and returns a store on it. The store's Close closes the
// client. Open sends nothing; see [Store.Ping].
//
//	redis://user:password@host:6379/0            one server
//	rediss://…                                   one server, by TLS
//	unix:///run/redis.sock?db=0                  one server, by its socket
//	redis-sentinel://host:26379/0?master_name=m  the master that sentinels name (rediss-sentinel: by TLS)
//	redis-cluster://host:7000                    a cluster (rediss-cluster: by TLS)
//
// valkey and valkeys in the place of redis and rediss mean the same.
// Further nodes of a sentinel or cluster are options, ?addr=host:port&addr=host:port. Other
// options are go-redis's, by their snake-case names (dial_timeout=2s, pool_size=20
// and so on), except skip_verify, which is refused.
//
// In a sentinel URL, user:password@ is for the sentinels, and the options username
// and password are for the server. If the URL has the option sentinel_username or
// sentinel_password, these are for the sentinels, and user:password@ is for the
// server.
//
// No error of Open quotes a value of the URL: each may be a secret.
//
// In an outage go-redis prints two lines a second on standard error, for every failed
// connection. See [LogTo].
func Open(rawURL string, c Config) (*Store, error) {
	client, err := Dial(rawURL, ClientConfig{})
	if err != nil {
		return nil, err
	}
	s, err := New(client, c)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s, nil
}

// ErrURL is the error for a URL that [Open] cannot use.
var ErrURL = errors.New("redisstore: malformed URL")

// ClientConfig has what a URL has no place for. Its zero value adds nothing.
type ClientConfig struct {
	// TLS replaces the default configuration, which trusts the system's roots, for a URL
	// that asks for TLS. Its ServerName may be empty: then it is the host of each server, and the
	// URL's for one that has only an IP address. For a client certificate that is renewed set
	// GetClientCertificate, which each connection calls.
	TLS *tls.Config
	// Credentials returns the user and the password for each new connection to a server, so
	// that the next connection uses a password that has changed. The server must accept the new
	// one before, and the old one a while longer: [ErrAuth] does not pass. An empty username means
	// the URL's. The URL must have no password for the server. An error fails the connection; its
	// text must contain no secret. So does an empty password of a user other than default, since
	// the connection would be the default user's; for a user with nopass return any other. It is
	// called concurrently, and never for sentinels. Default: the URL's user and password.
	Credentials func(context.Context) (username, password string, err error)
	// SentinelUsername and SentinelPassword are for the sentinels of a redis-sentinel URL.
	// With either, user:password@ in the URL is the server's.
	SentinelUsername, SentinelPassword string
}

// Dial returns the client that [Open] makes for a URL, for callers that need the
// client itself and close it, or that configure it further. It connects on first use.
//
// The client respects the deadlines of contexts. It omits the optional commands of
// go-redis's handshake: over a slow network each of its round trips takes time from the
// renewal of a lease.
func Dial(rawURL string, c ClientConfig) (redis.UniversalClient, error) {
	if rawURL == "" {
		return nil, badURL("it is empty")
	}
	scheme, rest, isURL := strings.Cut(rawURL, "://")
	base, mode, _ := strings.Cut(scheme, "-")
	switch base {
	case "valkey":
		base = "redis"
	case "valkeys":
		base = "rediss"
	}
	if !isURL || base != "redis" && base != "rediss" && scheme != "unix" {
		return nil, badURL("its scheme is none of the accepted ones")
	}
	plain := base + "://" + rest
	if err := refuse(plain, mode); err != nil {
		return nil, err
	}
	if mode != "sentinel" && c.SentinelUsername+c.SentinelPassword != "" {
		return nil, badURL("a user or a password for sentinels needs redis-sentinel://")
	}
	switch mode {
	case "":
		o, err := redis.ParseURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, c.TLS)
		o.Dialer = dialer(o.DialTimeout, o.TLSConfig, c.TLS)
		o.CredentialsProviderContext, err = c.provider(o.Username, o.Password)
		if err != nil {
			return nil, err
		}
		return reasoned(redis.NewClient(o)), nil
	case "sentinel":
		o, err := parseSentinelURL(plain, c)
		if err != nil {
			return nil, err
		}
		leaveSilentSentinel(o)
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.TLSConfig = secure(o.TLSConfig, c.TLS)
		o.Dialer = dialer(o.DialTimeout, o.TLSConfig, c.TLS)
		o.CredentialsProviderContext, err = c.provider(o.Username, o.Password)
		if err != nil {
			return nil, err
		}
		return reasoned(redis.NewFailoverClient(o)), nil
	case "cluster":
		o, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, c.TLS)
		o.Dialer = dialer(o.DialTimeout, o.TLSConfig, c.TLS)
		o.CredentialsProviderContext, err = c.provider(o.Username, o.Password)
		if err != nil {
			return nil, err
		}
		client := redis.NewClusterClient(o)
		client.OnNewNode(func(node *redis.Client) { reasoned(node) })
		return client, nil
	}
	return nil, badURL("its scheme is none of the accepted ones")
}

// dialOnce is how often a connection is tried for one request. Package lock repeats
// requests. More tries here would use up a request's time, and its error would be the
// deadline instead of the reason.
const dialOnce = 1

// unparsed describes a URL whose fault cannot be explained without quoting it.
const unparsed = "it cannot be parsed (special characters in a password must be percent-encoded)"

// refuse returns an error for URLs that the parsers of go-redis accept and should not.
// One is a URL that disables the verification of certificates, since its author is often
// not the program's. Another is a URL that a password has split: a part of the password
// would become the host. A cluster's database would be ignored. The others name no address, so
// every request would be repeated for ever.
func refuse(rawURL, mode string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil //nolint:nilerr // the parsers report it, without a secret
	}
	switch options := u.Query(); {
	case options.Has("skip_verify"):
		return badURL("skip_verify is refused, because without verification any server that answers gets the password; trust the authority of the server's certificate instead")
	case u.Fragment != "", u.Scheme != "unix" && strings.Contains(u.Path, "@"):
		return badURL(unparsed)
	case mode == "cluster" && strings.Trim(u.Path, "/0") != "":
		return badURL("a cluster's client has no database but 0")
	case strings.HasPrefix(options.Get("db"), "-"), u.Scheme != "unix" && strings.HasPrefix(u.Path, "/-"):
		return badURL("its database is below 0, for which go-redis uses 0")
	case u.Scheme == "unix" && u.Host != "":
		return badURL("the path of its socket does not begin with a slash")
	case strings.ContainsAny(u.Hostname(), "&=,"):
		return badURL("its host is none: further nodes are options, the first after a question mark, ?addr=host:port&addr=host:port")
	case !isPort(u.Port()) || slices.ContainsFunc(options["addr"], func(addr string) bool { return !isPort(addr[strings.LastIndex(addr, ":")+1:]) }):
		return badURL("one of its ports is none; accepted are numbers from 1 to 65535")
	}
	return nil
}

// isPort reports whether text is the number of a port, or not a number, which the parsers report.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 || errors.Is(err, strconv.ErrSyntax)
}

// leaveSilentSentinel makes the client ask all sentinels if the one that it asked last does not
// answer. go-redis keeps that one if the time to connect ends before that to read does: then no
// connection could be made any more.
func leaveSilentSentinel(o *redis.FailoverOptions) {
	const connects, reads = 5 * time.Second, 3 * time.Second // connects is go-redis's default, for both
	o.ReadTimeout = cmp.Or(o.ReadTimeout, min(reads, cmp.Or(o.DialTimeout, connects)*3/5))
}

// parseSentinelURL parses the URL of sentinels. The parser of go-redis uses
// user:password@ for the sentinels and has no other option for their credentials.
func parseSentinelURL(rawURL string, c ClientConfig) (*redis.FailoverOptions, error) {
	const username, password = "sentinel_username", "sentinel_password"
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, badURL(reason(rawURL, err))
	}
	options, server := u.Query(), u.User
	named := options.Has(username) || options.Has(password)
	user, secret := options.Get(username), options.Get(password)
	if c.SentinelUsername+c.SentinelPassword != "" {
		if named && secret != "" && c.SentinelPassword != "" {
			return nil, badURL("it has a password for the sentinels, which is given apart from it too")
		}
		named, user, secret = true, cmp.Or(c.SentinelUsername, user), cmp.Or(c.SentinelPassword, secret)
	}
	if named {
		if server != nil && (options.Has("username") || options.Has("password")) {
			return nil, badURL("with sentinel_username or sentinel_password, user:password@ is the server's, and so are username and password: give the server's once")
		}
		options.Del(username)
		options.Del(password)
		u.RawQuery, u.User = options.Encode(), nil
	}
	o, err := redis.ParseFailoverURL(u.String())
	switch {
	case err != nil:
		return nil, badURL(reason(rawURL, err))
	case o.MasterName == "":
		return nil, badURL("a sentinel's URL needs ?master_name=")
	case !named:
		return o, nil
	}
	o.SentinelUsername, o.SentinelPassword = user, secret
	if server != nil {
		o.Username = server.Username()
		o.Password, _ = server.Password()
	}
	return o, nil
}

// errNoPassword reports a user without a password.
var errNoPassword = errors.New("the user has no password")

// provider returns the source of the credentials for a server whose URL has a user and a
// password, or nil if the URL is the source.
func (c *ClientConfig) provider(username, password string) (func(context.Context) (string, string, error), error) {
	switch {
	case c.Credentials == nil:
		return nil, nil
	case password != "":
		return nil, badURL("it has a password for the server, which is given apart from it too")
	}
	return func(ctx context.Context) (string, string, error) {
		user, secret, err := c.Credentials(ctx)
		user = cmp.Or(user, username)
		if err == nil && user != "" && user != "default" && secret == "" { // go-redis would be the default user
			err = errNoPassword
		}
		if err != nil {
			err = &fault.Credentials{Err: err}
		}
		return user, secret, err
	}, nil
}

// noMaintenance leaves out one round trip of the handshake.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// secure returns config in place of fromURL, the TLS configuration of a URL. Without TLS
// in the URL it returns nil.
func secure(fromURL, config *tls.Config) *tls.Config {
	if fromURL == nil || config == nil {
		return fromURL
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, fromURL.ServerName)
	return config
}

// dialer returns what dials by TLS, and nil without TLS: then go-redis's own suffices. By TLS that
// one ignores the context, so that a server that hangs would hold up a subscription, and Close, for
// the whole timeout. It would also connect once more for each subscription connection that breaks.
func dialer(timeout time.Duration, config, users *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	if config == nil {
		return nil
	}
	d := &net.Dialer{
		Timeout:         cmp.Or(timeout, 5*time.Second), // go-redis's default, like the following
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		named := config.Clone()
		if users == nil || users.ServerName == "" {
			named.ServerName = serverName(address, config.ServerName)
		}
		return (&tls.Dialer{NetDialer: d, Config: named}).DialContext(ctx, network, address)
	}
}

// serverName returns the name by which a server is verified: its own, since sentinels and clusters name
// other hosts than the URL's; that of the URL for a server without one.
func serverName(address, ofURL string) string {
	host, _, _ := net.SplitHostPort(address)
	if net.ParseIP(host) != nil && net.ParseIP(ofURL) == nil {
		return ofURL
	}
	return host
}

func badURL(what string) error {
	return fmt.Errorf("%w: %s; accepted are redis://[user:password@]host:port[/db], rediss://…, unix:///path, redis-sentinel://host:port?master_name=name and redis-cluster://host:port, each also with valkey in the place of redis", ErrURL, what)
}

var (
	// badValue matches go-redis's error for an option's value.
	badValue = regexp.MustCompile(`^redis: invalid ([a-z_]+) (number|duration|boolean)`)
	// optionNames matches a list of possible option names.
	optionNames = regexp.MustCompile(`^[a-z_]+(, [a-z_]+)*$`)
)

// reason returns the complaint of a URL parser. It quotes no value, since each may be a
// secret or a part of one: a special character that is not percent-encoded splits a
// password across the URL.
func reason(rawURL string, err error) string {
	u, parsing := url.Parse(rawURL)
	if parsing != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return unparsed
	}
	text := err.Error()
	if match := badValue.FindStringSubmatch(text); match != nil {
		return fmt.Sprintf("the value of %s is not a %s", match[1], match[2])
	}
	switch {
	case strings.Contains(text, "invalid URL path"):
		return "its path is not the number of a database"
	case strings.Contains(text, "addr param"):
		return "one of its addr is not host:port"
	case strings.Contains(text, "socket path"):
		return "it has no path of a socket"
	}
	if _, names, unknown := strings.Cut(text, "unexpected option: "); unknown {
		return "it has an unknown option" + quotable(u, names)
	}
	return unparsed
}

// quotable returns the names of unknown options for an error text, or "". A name may be a
// part of a password that was given as an option and contains "&".
func quotable(u *url.URL, names string) string {
	options := u.Query()
	if options.Has("password") || options.Has("sentinel_password") || !optionNames.MatchString(names) {
		return ""
	}
	return ": " + names
}

// LogTo routes the messages of go-redis itself to logger, for the whole process: go-redis
// has one logger for all clients. By default they go to standard error. Nil discards them;
// what matters about an outage is in the errors and losses of this module. The logger is called in the
// background; it may block and panic. Call LogTo before the first client is made.
func LogTo(logger *slog.Logger) { redis.SetLogger(newSlogLogger(logger)) }

// slogLogger is a go-redis logger that writes to slog.
type slogLogger struct{ to logging.Logger }

func newSlogLogger(to *slog.Logger) slogLogger { return slogLogger{logging.New(to)} }

func (l slogLogger) Printf(ctx context.Context, format string, v ...any) {
	l.to.WarnContext(ctx, "redis: "+fmt.Sprintf(format, v...))
}
