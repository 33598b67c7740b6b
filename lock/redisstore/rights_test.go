package redisstore

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// The rights of a kind, with those of mutexes, allow each command of its scripts.
func TestRightsCoverTheScripts(t *testing.T) {
	t.Parallel()
	commands := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	for f := range formats {
		allowed := make(map[string]string) // by flag
		for _, u := range uses(formats[f].kinds, "orders:42") {
			for _, command := range u.Commands {
				allowed[u.Flag] += " " + strings.Fields(command)[0]
			}
		}
		first := formats[f].kinds[0].rights.flag
		for i, k := range formats[f].kinds {
			r := request{Hold: &driver.Hold{Owner: strings.Repeat("0", 32), Kind: driver.Kind(i)}, store: new(Store), at: "orders:42"}
			scripts := []*transport.Script{k.renew, k.counter}
			for _, call := range []func(request) (*transport.Call, error){k.acquire, k.release} {
				if call == nil {
					continue
				}
				c, err := call(r)
				require.NoError(t, err)
				scripts = append(scripts, c.Script)
			}
			flag := ""
			for _, other := range formats[f].kinds[:i+1] {
				if other.rights != nil {
					flag = other.rights.flag // a write lock has those of a read lock
				}
			}
			for _, sc := range scripts {
				if sc == nil {
					continue
				}
				for _, found := range commands.FindAllStringSubmatch(sc.Text().Source, -1) {
					if found[1] == "spublish" {
						continue // a check adds it in a cluster that has it
					}
					assert.Contains(t, strings.Fields(allowed[first]+allowed[flag]), found[1], "%v: %v", Format(f), driver.Kind(i))
				}
			}
		}
	}
}
