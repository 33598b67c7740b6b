package redisstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// A kind's rights are those of each of its scripts, and a check tries each command of them.
func TestRightsCoverTheScripts(t *testing.T) {
	t.Parallel()
	trials := lua.File("rights.lua")().Source
	for f := range formats {
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
			use := uses([]*kind{k}, example("orders:42"))[0]
			for _, sc := range scripts {
				if sc != nil {
					assert.Subset(t, use.Commands, sc.Text().Commands(), "%v: %v", Format(f), driver.Kind(i))
				}
			}
			for _, command := range use.Commands {
				assert.Regexp(t, "'"+strings.ReplaceAll(command, "|", " ")+"[ ']", trials)
			}
		}
	}
}
