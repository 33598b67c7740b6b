package redisstore_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestNewRefusesUnfitClients(t *testing.T) {
	var (
		noClient  *redis.Client
		noCluster *redis.ClusterClient
	)
	for name, test := range map[string]struct {
		client redis.UniversalClient
		says   string
	}{
		"nil":                     {nil, "Open"},
		"nil *Client":             {noClient, "Open"},
		"nil *ClusterClient":      {noCluster, "Open"},
		"deadlines ignored":       {redis.NewClient(&redis.Options{}), "ContextTimeoutEnabled: true"},
		"reads without an end":    {redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: -2}), "ReadTimeout"},
		"writes without an end":   {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, WriteTimeout: -2}), "WriteTimeout"},
		"by sentinel":             {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}), "ContextTimeoutEnabled: true"},
		"by a hanging sentinel":   {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}), "below DialTimeout"},
		"… for ever":              {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, ReadTimeout: -1}), "below DialTimeout"},
		"cluster":                 {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), "ContextTimeoutEnabled: true"},
		"cluster, no redirects":   {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, MaxRedirects: -1}), "MaxRedirects"},
		"cluster, of replicas":    {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, RouteByLatency: true}), "ReadOnly"},
		"ring":                    {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}), "quorum"},
		"something of the user's": {struct{ redis.UniversalClient }{}, "Open"},
	} {
		_, err := redisstore.New(test.client, redisstore.Config{})
		require.ErrorIs(t, err, redisstore.ErrClient, name)
		assert.Contains(t, err.Error(), test.says, name)
		assert.NotContains(t, err.Error(), "\n", name)
		if c, ok := test.client.(interface{ Close() error }); ok && !strings.Contains(name, "nil") && name != "something of the user's" {
			_ = c.Close()
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Password: secret, TCP: true})
	store, err := redisstore.Open(server.URL()+"?"+unhurriedIO, redisstore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.Ping(t.Context()))
	l, err := lock.New(store, lock.Config{TTL: longTTL, RequestTimeout: answersWithin})
	require.NoError(t, err)
	require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
	require.NoError(t, l.Close())
	require.NoError(t, store.Close())
	require.Error(t, store.Ping(t.Context()), "the client that Open made is closed with the store")
	require.NotErrorIs(t, store.Ping(t.Context()), driver.ErrUnavailable)
}

func TestOpenKindsOfURL(t *testing.T) {
	for url, want := range map[string]any{
		"redis://127.0.0.1:7000/3?pool_size=4":                                   &redis.Client{},
		"rediss://user:" + secret + "@127.0.0.1:7000":                            &redis.Client{},
		"unix:///run/redis.sock?db=2":                                            &redis.Client{},
		"redis-sentinel://127.0.0.1:26379/1?master_name=m&addr=127.0.0.1:26380":  &redis.Client{},
		"rediss-sentinel://:" + secret + "@127.0.0.1:26379?master_name=m":        &redis.Client{},
		"redis-cluster://127.0.0.1:7000?addr=127.0.0.1:7001&addr=127.0.0.1:7002": &redis.ClusterClient{},
		"rediss-cluster://:" + secret + "@127.0.0.1:7000":                        &redis.ClusterClient{},
		"valkey://127.0.0.1:7000":                                                &redis.Client{},
		"valkeys://user:" + secret + "@127.0.0.1:7000":                           &redis.Client{},
		"valkey-sentinel://127.0.0.1:26379/1?master_name=m":                      &redis.Client{},
		"valkey-cluster://127.0.0.1:7000":                                        &redis.ClusterClient{},
		"valkeys-cluster://127.0.0.1:7000":                                       &redis.ClusterClient{},
	} {
		client, err := redisstore.Dial(url, redisstore.ClientConfig{})
		require.NoError(t, err, url)
		assert.IsType(t, want, client, url)
		store, err := redisstore.New(client, redisstore.Config{})
		require.NoError(t, err, "what Dial makes is fit for New: %s", url)
		require.NoError(t, store.Close())
		require.NoError(t, client.Close())
	}
}

func TestOpenNeedsAURL(t *testing.T) {
	_, err := redisstore.Open("", redisstore.Config{})
	require.ErrorContains(t, err, "malformed URL: it is empty; accepted are redis://")
}

func TestDialSecures(t *testing.T) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, scheme := range []string{"rediss", "valkeys"} {
		client, err := redisstore.Dial(scheme+"://redis.example:7000", redisstore.ClientConfig{TLS: config})
		require.NoError(t, err)
		defer client.Close()
		used := client.(*redis.Client).Options().TLSConfig
		require.NotNil(t, used, scheme)
		assert.EqualValues(t, tls.VersionTLS13, used.MinVersion)
		assert.Equal(t, "redis.example", used.ServerName)
		assert.Empty(t, config.ServerName, "the caller's is left alone")
		assert.False(t, used.InsecureSkipVerify)
	}

	plain, err := redisstore.Dial("redis://redis.example:7000", redisstore.ClientConfig{TLS: config})
	require.NoError(t, err)
	defer plain.Close()
	assert.Nil(t, plain.(*redis.Client).Options().TLSConfig)
}

// Servers that sentinels or a cluster name have certificates of their own: each is verified by its name.
func TestDialVerifiesEachServerByItsName(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil) // with a certificate for example.com and 127.0.0.1
	t.Cleanup(server.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for _, c := range []struct{ url, set, verified string }{
		{"10.0.0.1", "", "127.0.0.1"},
		{"redis.example", "", "redis.example"},
		{"10.0.0.1", "set.example", "set.example"},
		{"redis.example", "example.com", "example.com"},
	} {
		client, err := redisstore.Dial("rediss-cluster://"+c.url, redisstore.ClientConfig{TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: trusted, ServerName: c.set,
		}})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		conn, err := client.(*redis.ClusterClient).Options().Dialer(t.Context(), "tcp", server.Listener.Addr().String())
		if err == nil {
			require.NoError(t, conn.Close())
			assert.NoError(t, server.Certificate().VerifyHostname(c.verified), "%+v", c)
			continue
		}
		var other x509.HostnameError
		require.ErrorAs(t, err, &other, "%+v", c)
		assert.Equal(t, c.verified, other.Host, "%+v", c)
	}

	assert.Equal(t, "b.example", redisstore.ServerName("b.example:6379", "a.example"))
	assert.Equal(t, "b.example", redisstore.ServerName("b.example:6379", "10.0.0.1"))
	assert.Equal(t, "a.example", redisstore.ServerName("[::1]:6379", "a.example"))
	assert.Equal(t, "::1", redisstore.ServerName("[::1]:6379", "10.0.0.1"))
}

// For any malformed URL, the error has one line and no password.
func TestMalformedURLs(t *testing.T) {
	for _, url := range []string{
		"", "redis", "://", "redis://", "localhost:6379", "http://:" + secret + "@h:1", "redis-x://:" + secret + "@h:1",
		"unix-cluster://:" + secret + "@h:1",
		"redis://:" + secret + "@h:port/0",
		"redis://:" + secret + "@h:1/zero",
		"redis://:" + secret + "@h:1/0/1",
		"redis://:%zz" + secret + "@h:1",
		"redis://:" + secret + "#x@h:1",
		"redis://:x#" + secret + "@h:1",
		"redis://:x?" + secret + "@h:1",
		"redis://:x/" + secret + "@h:1",
		"redis://:x/y/" + secret + "@h:1",
		"redis://:1/" + secret + "@h:1",
		"redis://:1?" + secret + "@h:1",
		"redis://:1#" + secret + "@h:1",
		"redis-cluster://:1#" + secret + "@h:1",
		"redis-cluster://:1/" + secret + "@h:1",
		"redis://:" + secret + " @h:1",
		"redis://:" + secret + "\n@h:1",
		"redis://:" + secret + "@h:1?pool_size=many",
		"redis://:" + secret + "@h:1?no_such_option=1",
		"redis://:" + secret + "@h:1?dial_timeout=soon",
		"unix://:" + secret + "@",
		"redis-sentinel://:" + secret + "@h:1",
		"redis-sentinel://:" + secret + "@h:1?no_such_option=1",
		"redis-cluster://:" + secret + "@h:1?no_such_option=1",
	} {
		store, err := redisstore.Open(url, redisstore.Config{})
		if url == "redis://" && err == nil { // localhost, go-redis says
			require.NoError(t, store.Close())
			continue
		}
		require.ErrorIs(t, err, redisstore.ErrURL, "%q", url)
		assert.NotContains(t, err.Error(), secret, "%q", url)
		assert.NotContains(t, err.Error(), "\n", "%q", url)
		assert.Contains(t, err.Error(), "redis://", "it says what is accepted")
	}
	_, err := redisstore.Open("redis://:"+secret+"@h:1?no_such_option=1", redisstore.Config{})
	assert.ErrorContains(t, err, "no_such_option", "it says what is wrong where that is no secret")
}

// No error contains a value of a URL: any of them may be a secret, even by mistake.
func TestErrorsQuoteNoValueOfAURL(t *testing.T) {
	for name, test := range map[string]struct{ url, says string }{
		"duration":                      {"redis://h?dial_timeout=" + secret, "dial_timeout is not a duration"},
		"number":                        {"redis://h?pool_size=" + secret, "pool_size is not a number"},
		"boolean":                       {"redis://h?pool_fifo=" + secret, "pool_fifo is not a boolean"},
		"database":                      {"redis://h/" + secret, "database"},
		"database as an option":         {"redis://h?db=" + secret, "database"},
		"database below 0":              {"redis://:" + secret + "@h/-1", "its database is below 0"},
		"option for one below 0":        {"unix://:" + secret + "@/s?db=-1", "its database is below 0"},
		"sentinel's database below 0":   {"redis-sentinel://:" + secret + "@h?master_name=m&db=-2", "its database is below 0"},
		"path":                          {"redis://h/1/" + secret, "path"},
		"option":                        {"redis://h?no_such_option=" + secret, "unknown option: no_such_option"},
		"option of a strange name":      {"redis://h?" + secret + "!=1", "unknown option"},
		"option of a sentinel":          {"redis-sentinel://h?master_name=m&no_such_option=" + secret, "unknown option: no_such_option"},
		"rest of a sentinel's password": {"redis-sentinel://h?master_name=m&password=half&" + secret, "unknown option"},
		"duration of a sentinel":        {"redis-sentinel://h?master_name=m&dial_timeout=" + secret, "dial_timeout is not a duration"},
		"sentinel":                      {"redis-sentinel://h?master_name=m&addr=" + secret, "addr is not host:port"},
		"duration of a cluster":         {"redis-cluster://h?dial_timeout=" + secret, "dial_timeout is not a duration"},
		"node":                          {"redis-cluster://h?addr=" + secret, "addr is not host:port"},
		"database of a cluster":         {"redis-cluster://:" + secret + "@h/3", "no database but 0"},
		"path of a cluster":             {"redis-cluster://h/" + secret, "no database but 0"},
		"two passwords of a server":     {"redis-sentinel://:" + secret + "@h?master_name=m&sentinel_password=" + secret + "&password=" + secret, "give the server's once"},
		"a port beyond all":             {"redis://:" + secret + "@h:65536", "one of its ports is none"},
		"port 0":                        {"redis-sentinel://:" + secret + "@h:0?master_name=m", "one of its ports is none"},
		"a node's port beyond all":      {"redis-cluster://:" + secret + "@h:1?addr=h:2&addr=h:99999", "one of its ports is none"},
		"nodes without a question mark": {"redis-cluster://:" + secret + "@h:1&addr=h:2", "the first after a question mark"},
		"nodes between commas":          {"redis-cluster://:" + secret + "@h:1,h:2", "the first after a question mark"},
		"a relative path of a socket":   {"unix://:" + secret + "@run/redis.sock", "does not begin with a slash"},
		"verification":                  {"rediss://:" + secret + "@h?skip_verify=" + secret, "skip_verify"},
	} {
		_, err := redisstore.Dial(test.url, redisstore.ClientConfig{})
		require.ErrorIs(t, err, redisstore.ErrURL, name)
		assert.ErrorContains(t, err, test.says, name)
		assert.NotContains(t, err.Error(), secret, name)
	}
}

// A URL cannot turn the verification of certificates off.
func TestDialRefusesToSkipVerification(t *testing.T) {
	for _, url := range []string{
		"rediss://h?skip_verify=true", "rediss://h?skip_verify=1", "redis://h?skip_verify=true",
		"rediss-sentinel://h?master_name=m&skip_verify=true", "rediss-cluster://h?skip_verify=true",
	} {
		_, err := redisstore.Dial(url, redisstore.ClientConfig{})
		require.ErrorIs(t, err, redisstore.ErrURL, url)
		assert.ErrorContains(t, err, "skip_verify is refused", url)
	}
}

// A URL of another kind than its server, or of a database that it lacks, gets an error with the next
// step, and no retry.
func TestURLOfAnotherKindOfServer(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{Replicas: 1, Sentinels: 1})
	_, server := set.Nodes[0].Addr()
	_, sentinel := set.Sentinels[0].Addr()
	for url, advice := range map[string]string{
		"redis-cluster://" + server + "?":                        "connect by redis://",
		"redis://" + server + "/16?":                             "it has no database of this number",
		"redis-sentinel://" + server + "?master_name=m&":         "it is no sentinel",
		"redis-sentinel://" + sentinel + "?master_name=missing&": "check master_name",
		"redis://" + sentinel + "?":                              "`leasewheel doctor` finds what is missing",
		"redis-cluster://" + sentinel + "?":                      "`leasewheel doctor` finds what is missing",
	} {
		err := tryAt(t, url+unhurriedIO)
		require.ErrorContains(t, err, advice, url)
		assert.NotErrorIs(t, err, driver.ErrUnavailable, url)
	}
}

// While a sentinel does not answer, the refusals of the others do not end a request: it may know
// the master.
func TestRefusalOfSomeSentinels(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{
		"another password":     "-NOAUTH Authentication required.\r\n",
		"without any password": "-ERR Client sent AUTH, but no password is set\r\n",
		"it knows no master":   "*-1\r\n",
	} {
		refusing := fakeServer(t, func(command []string) string {
			if command[0] == "hello" {
				return "-ERR unknown command 'hello'\r\n"
			}
			return refusal
		})
		url := "redis-sentinel://" + refusing + "?master_name=m&" + unhurriedIO
		acquire := func(url string) error {
			store, err := redisstore.Open(url, redisstore.Config{})
			require.NoError(t, err)
			defer store.Close()
			_, err = store.Acquire(t.Context(), mutexOf("a", 1))
			assert.NotContains(t, err.Error(), "\n", name)
			return err
		}
		require.NotErrorIs(t, acquire(url), driver.ErrUnavailable, name)
		require.ErrorIs(t, acquire(url+"&addr=127.0.0.1:1"), driver.ErrUnavailable, name)
	}
}

// A sentinel that hangs does not keep a client from the others.
func TestSentinelThatHangs(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{Replicas: 1})
	_, asked := set.Sentinels[0].Addr() // its answer names the others
	store, err := redisstore.Open("redis-sentinel://"+asked+"?dial_timeout=2s&master_name="+redistest.MasterName, redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	l := lockerOn(t, store, lock.Config{})
	require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
	set.Sentinels[0].Pause()
	do(t, set.Nodes[0], "client", "kill", "type", "normal", "skipme", "yes")
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second) // without the others there is no end
	defer cancel()
	lease, err := l.Mutex("a").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

// tryAt returns the error of a TryLock on the servers of a URL.
func tryAt(t *testing.T, url string) error {
	t.Helper()
	store, err := redisstore.Open(url, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	locker, err := lock.New(store, lock.Config{RequestTimeout: answersWithin})
	require.NoError(t, err)
	defer locker.Close()
	_, err = locker.Mutex("a").TryLock(t.Context())
	return err
}

// The two logins of a sentinel URL are used as Open documents: for the sentinels, and for
// the server.
func TestSentinelURLHasTwoLogins(t *testing.T) {
	t.Parallel()
	const sentinels = "open sesame"
	set := redistest.StartSentinels(t, redistest.SentinelConfig{
		Replicas: 1, Sentinels: 1, Server: redistest.Config{Password: secret}, DownAfter: time.Minute,
	})
	_, sentinel := set.Sentinels[0].Addr()
	admin := redis.NewClient(set.Sentinels[0].Options())
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">"+sentinels).Err())
	for name, test := range map[string]struct {
		login, options string
		works          bool
	}{
		"the sentinels' before the host":    {url.UserPassword("", sentinels).String() + "@", "&password=" + secret, true},
		"the server's before the host":      {":" + secret + "@", "&sentinel_password=" + url.QueryEscape(sentinels), true},
		"both as options":                   {"", "&sentinel_password=" + url.QueryEscape(sentinels) + "&password=" + secret, true},
		"with the default user":             {"default:" + secret + "@", "&sentinel_username=default&sentinel_password=" + url.QueryEscape(sentinels), true},
		"the sentinels' password is wrong":  {":" + secret + "@", "&sentinel_password=wrong", false},
		"the server's password is wrong":    {":wrong@", "&sentinel_password=" + url.QueryEscape(sentinels), false},
		"the server's is not the sentinels": {":" + secret + "@", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := redisstore.Dial("redis-sentinel://"+test.login+sentinel+"?master_name="+redistest.MasterName+"&"+unhurriedIO+test.options, redisstore.ClientConfig{})
			require.NoError(t, err)
			defer client.Close()
			err = client.Ping(t.Context()).Err()
			if test.works {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				assert.NotContains(t, err.Error(), secret)
			}
		})
	}
}

func FuzzOpenHidesPasswords(f *testing.F) {
	for _, seed := range []string{"redis://:%s@h:1", "%s", "rediss://%s:1/0", "redis-cluster://:%s@h/x?y=z", "unix://u:%s@/x?db=%s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		before, after, found := strings.Cut(url, "%s")
		if !found || strings.Contains(before+after, "%s") {
			return
		}
		store, err := redisstore.Open(before+secret+after, redisstore.Config{})
		if err != nil {
			// A text without "@" has no password, so it may be quoted.
			if strings.Contains(err.Error(), secret) && strings.Contains(after, "@") {
				t.Errorf("%q: %v", before+secret+after, err)
			}
			return
		}
		_ = store.Close()
	})
}

// go-redis's own messages become records of slog. A logger that blocks does not block go-redis.
func TestRelay(t *testing.T) {
	out, in := io.Pipe() // a write blocks until it is read
	r := redisstore.Relay(slog.New(slog.NewTextHandler(in, nil)))
	r.Printf(t.Context(), "dial %s: %d", "h:1", 7)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "dial h:1: 7")
	assert.Contains(t, line, "level=WARN")
}
