//go:build real

package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rightsOfRedisson is what docs/interop.md adds to the rights of `leasewheel acl` for Redisson.
const rightsOfRedisson = "~redisson_* ~{*} ~{*}:* &redisson_* +decr +hincrby +hkeys +incr +lrange +script|load +zincrby"

// TestRightsOfRedisson has Redisson wait for each kind of lock, hold and release it, as a user who
// has no other rights than docs/interop.md lists.
func TestRightsOfRedisson(t *testing.T) {
	leasewheel := exec.Command("go", "run", "./cmd/leasewheel", "acl", "--json", "--user", "java", "--fair", "--read-write", "--semaphore", "rights:*")
	leasewheel.Dir, leasewheel.Stderr = "../../..", os.Stderr
	printed, err := leasewheel.Output()
	require.NoError(t, err)
	var rights struct{ Rules []string }
	require.NoError(t, json.Unmarshal(printed, &rights))
	document, err := os.ReadFile("../../../docs/interop.md")
	require.NoError(t, err)
	if !strings.Contains(string(document), rightsOfRedisson) {
		t.Fatal("docs/interop.md has other rights")
	}
	set := []any{"acl", "setuser", "java", "on", ">none"}
	for _, rule := range append(rights.Rules, strings.Fields(rightsOfRedisson)...) {
		set = append(set, rule)
	}
	each(t, func(t *testing.T, version string) {
		s := single(t)
		require.NoError(t, s.nodes[0].Do(t.Context(), set...).Err())
		java, wheel := open(t, redisson(t, version), s.address, "user=java"), open(t, golang(t), s.address)
		for _, kind := range []string{"mutex", "fair", "read", "write", "spin", "fenced"} {
			name := fresh("rights:" + kind)
			for range 2 {
				require.NotEqual(t, "0", java.do("a", "lock", kind, name, never, renewed))
			}
			assert.Equal(t, "1", java.do("a", "locked", kind, name))
			java.do("a", "unlock", kind, name)
			java.do("a", "unlock", kind, name)
			if kind == "spin" {
				continue // the driver in Go has none
			}
			wheel.do("b", "lock", strings.Replace(kind, "read", "write", 1), name, never, renewed)
			assert.Equal(t, "0", java.do("a", "lock", kind, name, short, renewed), "Redisson gives up")
			granted := java.begin("a", "lock", kind, name, forever, renewed)
			s.awaitListeners(t, name, 1)
			wheel.do("b", "unlock", strings.Replace(kind, "read", "write", 1), name)
			require.NoError(t, await(t, granted).err)
			java.do("a", "force", kind, name)
		}
		name := fresh("rights:semaphore")
		java.do("a", "semaphore.set", name, 1)
		java.do("a", "semaphore.acquire", name, 1, forever)
		java.do("a", "semaphore.release", name, 1)
		name = fresh("rights:permits")
		java.do("a", "permits.set", name, 1)
		id := java.do("a", "permits.acquire", name, forever, 3_600_000)
		assert.Equal(t, "0", java.do("a", "permits.available", name))
		java.do("a", "permits.release", name, id)
		name = fresh("rights:latch")
		java.do("a", "latch.set", name, 1)
		opened := java.begin("b", "latch.await", name, forever)
		s.awaitListeners(t, name, 1)
		java.do("a", "latch.down", name)
		require.NoError(t, await(t, opened).err)

		denied, err := s.nodes[0].ACLLog(t.Context(), 128).Result()
		require.NoError(t, err)
		for _, entry := range denied { // Redisson tries a script with this key as it connects
			assert.Equal(t, "test1", entry.Object, "%+v", *entry)
		}
	})
}
