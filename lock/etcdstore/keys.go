package etcdstore

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// DefaultPrefix is the default of [Config.Prefix].
const DefaultPrefix = "leasewheel"

// keys names the keys of a store. No key of one prefix is a key of another: "//" ends the
// prefix, and is nowhere else.
//
//	prefix//lock/name              the record of a name
//	prefix//note/name/kind/of      written to wake the waiters of a topic
//	prefix//lease/id               there while an etcd lease is
//	prefix//client/id              who a client is, for inspection
//	prefix//epoch                  what tokens begin with
//	prefix//sweep                  there while a store removes records
type keys struct{ prefix string }

func newKeys(prefix string) (keys, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "//") {
		return keys{}, fmt.Errorf("etcdstore: the prefix %q ends with a slash, or has two in a row, which end a prefix", prefix)
	}
	return keys{prefix + "//"}, nil
}

func (k keys) locks() string           { return k.prefix + "lock/" }
func (k keys) lock(name string) string { return k.locks() + escape(name) }

func (k keys) note(name string, t machine.Topic) string {
	return k.prefix + "note/" + escape(name) + "/" + strconv.Itoa(int(t.Kind)) + "/" + escape(t.Of)
}

func (k keys) lease(id clientv3.LeaseID) string {
	return k.prefix + "lease/" + strconv.FormatInt(int64(id), 16)
}

func (k keys) client(id string) string { return k.prefix + "client/" + escape(id) }
func (k keys) epoch() string           { return k.prefix + "epoch" }
func (k keys) sweep() string           { return k.prefix + "sweep" }

// nameOf returns the name whose record a key has.
func (k keys) nameOf(key []byte) (name string, ok bool) {
	escaped, ok := strings.CutPrefix(string(key), k.locks())
	if !ok {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil
}

// escape replaces slashes, percent signs and control bytes by %XX. The escaped beginning of a
// name begins the escaped name.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c == '/' || c == '%' || c < ' ' || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
