package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrClient says that a client's options break a lock's promises. The error that
// carries it names the option and its right value.
var ErrClient = errors.New("redisstore: unfit client")

// inspect refuses a client that cannot keep a lock's promises.
func inspect(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			break
		}
		return bounded(c.Options().ContextTimeoutEnabled)
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		if c.Options().MaxRedirects < 1 {
			return fmt.Errorf("%w: it follows no redirects, so a lock whose slot moves is out of reach: leave ClusterOptions.MaxRedirects at 0 (which means 3) or set it to 1 or more", ErrClient)
		}
		return bounded(c.Options().ContextTimeoutEnabled)
	case *redis.Ring:
		return fmt.Errorf("%w: a redis.Ring sends a key to another server when one is down, and then two clients hold one lock: use a single server, sentinel, a cluster or a quorum of stores", ErrClient)
	}
	return fmt.Errorf("%w: %T cannot be inspected: pass a *redis.Client or a *redis.ClusterClient, or use Open", ErrClient, client)
}

func bounded(contextTimeoutEnabled bool) error {
	if contextTimeoutEnabled {
		return nil
	}
	return fmt.Errorf("%w: it ignores deadlines, so a mute server would hold a request for seconds after its lease ran out: set ContextTimeoutEnabled: true in its options, or use Open", ErrClient)
}

// Open returns a store on a client that it makes from a URL and closes with the
// store. It sends nothing; see [Store.Ping].
//
//	redis://user:password@host:6379/0            one server
//	rediss://…                                   one server, by TLS
//	unix:///run/redis.sock?db=0                  one server, by its socket
//	redis-sentinel://host:26379/0?master_name=m  the master that sentinels name (rediss-sentinel: by TLS)
//	redis-cluster://host:7000                    a cluster (rediss-cluster: by TLS)
//
// Further nodes of a sentinel or cluster are given as &addr=host:port. Other
// options are go-redis's, by their snake-case names (dial_timeout=2s, pool_size=20
// and so on), except skip_verify, which is refused.
//
// In a sentinel URL, user:password@ is for the sentinels, and the options username
// and password are for the server. If the URL has the option sentinel_username or
// sentinel_password, these are for the sentinels, and user:password@ is for the
// server.
//
// No error of Open quotes a value of the URL: each may be a secret.
func Open(rawURL string, c Config) (*Store, error) {
	client, err := Dial(rawURL, nil)
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

// ErrURL says that [Open] was given a URL which it cannot use.
var ErrURL = errors.New("redisstore: malformed URL")

// Dial returns the client that [Open] makes for a URL, for callers that need the
// client itself and close it. It connects on first use. For a URL that asks for TLS,
// config replaces the default, which trusts the system's roots; its ServerName may be
// empty.
//
// The client respects the deadlines of contexts. It omits what go-redis otherwise
// sends on each new connection: over a slow network every round trip of a handshake
// is taken from the time in which a lease must be renewed.
func Dial(rawURL string, config *tls.Config) (redis.UniversalClient, error) {
	scheme, rest, isURL := strings.Cut(rawURL, "://")
	base, mode, _ := strings.Cut(scheme, "-")
	if !isURL || base != "redis" && base != "rediss" && scheme != "unix" {
		return nil, badURL("its scheme is none of the accepted ones")
	}
	plain := base + "://" + rest
	if err := refuse(plain); err != nil {
		return nil, err
	}
	switch mode {
	case "":
		o, err := redis.ParseURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewClient(o), nil
	case "sentinel":
		o, err := parseSentinelURL(plain)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewFailoverClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity, o.DialerRetries = true, true, dialOnce
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewClusterClient(o), nil
	}
	return nil, badURL("its scheme is none of the accepted ones")
}

// dialOnce is how often a connection is tried for one request. Package lock sends
// requests again; more tries here would use up a request's time, and its error would be
// that of the deadline instead of the reason.
const dialOnce = 1

// unparsed is what is wrong with a URL of which no more can be said without quoting it.
const unparsed = "it cannot be parsed (special characters in a password must be percent-encoded)"

// refuse returns an error for what the parsers of go-redis accept and should not: a
// URL that turns the verification of certificates off, since a URL is often not written
// by the author of the program; and one that a password has split, so that a part of
// the password would be taken for the host.
func refuse(rawURL string) error {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return nil //nolint:nilerr // the parsers report it, without a secret
	case u.Query().Has("skip_verify"):
		return badURL("skip_verify is refused, because without verification any server that answers gets the password; trust the authority of the server's certificate instead")
	case u.Fragment != "", u.Scheme != "unix" && strings.Contains(u.Path, "@"):
		return badURL(unparsed)
	}
	return nil
}

// parseSentinelURL parses the URL of sentinels. The parser of go-redis gives
// user:password@ to the sentinels and has no other option for these.
func parseSentinelURL(rawURL string) (*redis.FailoverOptions, error) {
	const username, password = "sentinel_username", "sentinel_password"
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, badURL(reason(rawURL, err))
	}
	options, server := u.Query(), u.User
	named := options.Has(username) || options.Has(password)
	user, secret := options.Get(username), options.Get(password)
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

// noMaintenance leaves out one round trip of the handshake.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// secure returns the TLS configuration to use in place of the one made from a
// URL, which is nil for a connection without TLS.
func secure(fromURL, config *tls.Config) *tls.Config {
	if fromURL == nil || config == nil {
		return fromURL
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, fromURL.ServerName)
	return config
}

func badURL(what string) error {
	return fmt.Errorf("%w: %s; accepted are redis://[user:password@]host:port[/db], rediss://…, unix:///path, redis-sentinel://host:port?master_name=name and redis-cluster://host:port", ErrURL, what)
}

var (
	// badValue matches what go-redis reports of an option's value.
	badValue = regexp.MustCompile(`^redis: invalid ([a-z_]+) (number|duration|boolean)`)
	// optionNames matches what options may be called.
	optionNames = regexp.MustCompile(`^[a-z_]+(, [a-z_]+)*$`)
)

// reason returns what a URL parser complains of. It quotes no value, since each may
// be a secret or a part of one: a special character that is not percent-encoded
// splits a password over what follows.
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

// quotable returns the names of unknown options as an error shows them, or nothing: a
// name may be a part of a password that was given as an option and contains "&".
func quotable(u *url.URL, names string) string {
	options := u.Query()
	if options.Has("password") || options.Has("sentinel_password") || !optionNames.MatchString(names) {
		return ""
	}
	return ": " + names
}

// LogTo routes the messages of go-redis itself, which by default go to standard
// error, to logger. It holds for the whole process. Nil silences them.
func LogTo(logger *slog.Logger) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(relay{logger})
}

// relay is a go-redis logger that writes to slog.
type relay struct{ to *slog.Logger }

func (r relay) Printf(ctx context.Context, format string, v ...any) {
	r.to.WarnContext(ctx, "redis: "+fmt.Sprintf(format, v...))
}
