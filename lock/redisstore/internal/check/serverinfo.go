package check

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// serverInfo is what a server reports about itself, by INFO, HELLO and CONFIG GET. A server
// may report anything: each value is checked when it is read.
type serverInfo struct {
	fields map[string]string // of INFO
	hello  map[string]string
	config map[string]string
	// refused are the commands that the server refused.
	refused []string
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
	i := &serverInfo{fields: map[string]string{}, hello: map[string]string{}, config: map[string]string{}}
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
	if err := hello.Err(); err == nil {
		addPairs(i.hello, hello.Val())
	}
	i.note("INFO", infos, func(reply any) {
		text, _ := reply.(string)
		i.addInfo(text)
	})
	i.note("CONFIG GET", configs, func(reply any) { addPairs(i.config, reply) })
	return i, nil
}

// note reads the replies to a command, and records the command if the server refused it.
func (i *serverInfo) note(command string, cmds []*redis.Cmd, read func(reply any)) {
	refused := 0
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			refused++
			continue
		}
		read(cmd.Val())
	}
	if refused > 0 {
		i.refused = append(i.refused, command)
	}
}

// addInfo adds the fields of a reply to INFO.
func (i *serverInfo) addInfo(text string) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		add(i.fields, key, value, ok)
	}
}

// addPairs adds a reply of keys and values, which RESP3 has as a map.
func addPairs(to map[string]string, reply any) {
	put := func(key, value any) {
		k, ok := key.(string)
		switch v := value.(type) {
		case string:
			add(to, k, v, ok)
		case int64:
			add(to, k, strconv.FormatInt(v, 10), ok)
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

func add(to map[string]string, key, value string, ok bool) {
	if ok && len(key) <= longestField && len(value) <= longestField && len(to) < mostFields {
		to[key] = value
	}
}

// has reports whether INFO has the field.
func (i *serverInfo) has(field string) bool { _, ok := i.fields[field]; return ok }

// number returns a field that is a whole number from 0 to 2^53; known is false without one.
func (i *serverInfo) number(field string) (n int64, known bool) { return i.parse(i.fields, field) }

func (i *serverInfo) parse(from map[string]string, field string) (n int64, known bool) {
	text, ok := from[field]
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

// word returns a field that is a simple word; known is false without one.
func (i *serverInfo) word(from map[string]string, field string) (text string, known bool) {
	text, ok := from[field]
	if !ok {
		return "", false
	}
	if !simpleWord.MatchString(text) {
		i.odd = append(i.odd, field)
		return "", false
	}
	return text, true
}

var (
	simpleWord    = regexp.MustCompile(`^[A-Za-z0-9._|-]{1,40}$`)
	versionNumber = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})`)
	hostName      = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)
)

// id returns the id of the server's run.
func (i *serverInfo) id() string {
	id, _ := i.word(i.fields, "run_id")
	return id
}

// product returns the server's name and version, and whether it is one with the versions of
// Redis that is older than Redis 6.2. The version is "" if it is unknown.
func (i *serverInfo) product() (version string, old bool) {
	name := "redis"
	text, known := i.word(i.fields, "redis_version")
	if !known {
		text, known = i.word(i.hello, "version")
	}
	if server, ok := i.word(i.fields, "server_name"); ok { // of Valkey; by HELLO it may be redis
		name = server
	} else if server, ok := i.word(i.hello, "server"); ok {
		name = server
	}
	if own, ok := i.word(i.fields, name+"_version"); ok && name != "redis" {
		return name + " " + own, false
	}
	parts := versionNumber.FindStringSubmatch(text)
	if !known || parts == nil {
		return "", false
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	return name + " " + text, name == "redis" && (major < 6 || major == 6 && minor < 2)
}

// role returns "master" or "replica", or "" if it is unknown.
func (i *serverInfo) role() string {
	role, known := i.word(i.fields, "role")
	if !known {
		role, _ = i.word(i.hello, "role")
	}
	switch role {
	case "slave", "replica":
		return "replica"
	case "master":
		return role
	}
	return ""
}

// mode returns "standalone", "cluster" or "sentinel", or "" if it is unknown.
func (i *serverInfo) mode() string {
	mode, known := i.word(i.fields, "redis_mode")
	if !known {
		mode, _ = i.word(i.hello, "mode")
	}
	return mode
}

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
		r, err := parseReplica(i.fields[field])
		if err != nil {
			i.odd = append(i.odd, field)
			continue
		}
		list = append(list, r)
	}
	return list, count, true
}

var errReplica = errors.New("no description of a replica")

// parseReplica parses "ip=…,port=…,state=…,offset=…,lag=…".
func parseReplica(text string) (replica, error) {
	values := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
	}
	port, err := strconv.ParseUint(values["port"], 10, 16)
	host := values["ip"]
	if err != nil || port == 0 || net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return replica{}, errReplica
	}
	lag, err := strconv.ParseUint(values["lag"], 10, 31)
	if err != nil {
		lag = 0
	}
	return replica{
		address: net.JoinHostPort(host, strconv.FormatUint(port, 10)),
		online:  values["state"] == "online",
		lag:     time.Duration(lag) * time.Second,
	}, nil
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
