package check

import (
	"cmp"
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// serverInfo is what a server reports about itself, by HELLO, CONFIG GET and INFO. A server
// may report anything: each value is checked when it is read.
type serverInfo struct {
	fields    map[string]string
	configure bool // the server answers CONFIG GET
	// odd are the fields with values that make no sense.
	odd []string
}

const (
	mostFields     = 1000 // of a reply that is read
	longestField   = 256  // a longer value is ignored
	mostReplicas   = 16   // that are examined
	longestExcerpt = 160  // of a server's text in a finding
)

// sections are the parts of INFO that a check reads. They are requested one by one: servers
// before Redis 7 take one at a time.
var sections = []string{"server", "clients", "memory", "persistence", "stats", "replication"}

// directives are the settings that a check reads and INFO does not have.
var directives = []string{"appendfsync", "timeout", "tcp-keepalive"}

// readServerInfo asks a server about itself, in one pipeline. err is an error if the server
// did not answer.
func readServerInfo(ctx context.Context, client *redis.Client) (*serverInfo, error) {
	i := &serverInfo{fields: map[string]string{}, configure: true}
	pipe := client.Pipeline()
	hello := pipe.Do(ctx, "hello")
	var infos, configs []*redis.Cmd
	for _, section := range sections {
		infos = append(infos, pipe.Do(ctx, "info", section))
	}
	for _, directive := range directives {
		configs = append(configs, pipe.Do(ctx, "config", "get", directive))
	}
	if _, err := pipe.Exec(ctx); err != nil && fault.Silent(fault.Classify(err)) {
		return nil, fault.Classify(err)
	}
	i.addPairs(hello.Val())
	for _, cmd := range configs {
		i.configure = i.configure && cmd.Err() == nil
		i.addPairs(cmd.Val())
	}
	for _, cmd := range infos {
		text, _ := cmd.Val().(string)
		i.addInfo(text)
	}
	return i, nil
}

// addInfo adds the fields of a reply to INFO.
func (i *serverInfo) addInfo(text string) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		i.add(key, value, ok)
	}
}

// addPairs adds a reply of keys and values, which RESP3 has as a map.
func (i *serverInfo) addPairs(reply any) {
	put := func(key, value any) {
		k, ok := key.(string)
		switch v := value.(type) {
		case string:
			i.add(k, v, ok)
		case int64:
			i.add(k, strconv.FormatInt(v, 10), ok)
		}
	}
	switch pairs := reply.(type) {
	case map[any]any:
		for key, value := range pairs {
			put(key, value)
		}
	case []any:
		for ; len(pairs) >= 2; pairs = pairs[2:] {
			put(pairs[0], pairs[1])
		}
	}
}

func (i *serverInfo) add(key, value string, ok bool) {
	if ok && len(key) <= longestField && len(value) <= longestField && len(i.fields) < mostFields {
		i.fields[key] = value
	}
}

// has reports whether the server has reported the field.
func (i *serverInfo) has(field string) bool { _, ok := i.fields[field]; return ok }

// number returns a field that is a whole number from 0 to 2^53; known is false without one.
func (i *serverInfo) number(field string) (n int64, known bool) {
	text, ok := i.fields[field]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > lua.MaxNumber {
		i.odd = append(i.odd, field)
		return 0, false
	}
	return n, true
}

// word returns a field that is a simple word; "" without one.
func (i *serverInfo) word(field string) string {
	text, ok := i.fields[field]
	if ok && !simpleWord.MatchString(text) {
		i.odd = append(i.odd, field)
		return ""
	}
	return text
}

var (
	simpleWord    = regexp.MustCompile(`^[A-Za-z0-9._|-]{1,40}$`)
	versionNumber = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})`)
	hostName      = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

// product returns the server's name and version, and whether it is one with the versions of
// Redis that is older than Redis 6.2. The version is "" if it is unknown.
func (i *serverInfo) product() (version string, old bool) {
	name := cmp.Or(i.word("server_name"), i.word("server"), "redis") // Valkey's; by HELLO it may be redis
	if own := i.word(name + "_version"); own != "" && name != "redis" {
		return name + " " + own, false
	}
	text := cmp.Or(i.word("redis_version"), i.word("version"))
	parts := versionNumber.FindStringSubmatch(text)
	if parts == nil {
		return "", false
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	return name + " " + text, name == "redis" && (major < 6 || major == 6 && minor < 2)
}

// role returns "master" or "replica", or "" if it is unknown.
func (i *serverInfo) role() string {
	switch role := i.word("role"); role {
	case "slave", "replica":
		return "replica"
	case "master":
		return role
	}
	return ""
}

// mode returns "standalone", "cluster" or "sentinel", or "" if it is unknown.
func (i *serverInfo) mode() string { return cmp.Or(i.word("redis_mode"), i.word("mode")) }

// replica is a replica as its master reports it.
type replica struct {
	address string
	online  bool
	lag     time.Duration
}

// replicas returns the first replicas of a master, with their number.
func (i *serverInfo) replicas() (list []replica, count int64, known bool) {
	count, known = i.number("connected_slaves")
	if !known {
		return nil, 0, false
	}
	for n := range min(count, mostReplicas) {
		field := "slave" + strconv.FormatInt(n, 10)
		if r, ok := parseReplica(i.fields[field]); ok {
			list = append(list, r)
		} else {
			i.odd = append(i.odd, field)
		}
	}
	return list, count, true
}

// parseReplica parses "ip=…,port=…,state=…,offset=…,lag=…".
func parseReplica(text string) (r replica, ok bool) {
	values := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
	}
	port, err := strconv.ParseUint(values["port"], 10, 16)
	host := values["ip"]
	if err != nil || port == 0 || net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return replica{}, false
	}
	lag, err := strconv.ParseUint(values["lag"], 10, 31)
	if err != nil {
		lag = 0
	}
	return replica{
		address: net.JoinHostPort(host, strconv.FormatUint(port, 10)),
		online:  values["state"] == "online",
		lag:     time.Duration(lag) * time.Second,
	}, true
}

// excerpt returns the beginning of a server's text, in quotes if a terminal might act upon
// it.
func excerpt(text string) string { return excerptOf(text, longestExcerpt) }

func excerptOf(text string, most int) string {
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if q := strconv.Quote(text); q[1:len(q)-1] != strings.ReplaceAll(text, `"`, `\"`) {
		return q
	}
	return text
}
