package redisstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// keyFunctions are the functions that derive keys and channels from a lock's key, each
// with a client and an owner if it takes one.
var keyFunctions = map[string]func(at key) key{
	"channelKey":   channelKey,
	"tokenKey":     tokenKey,
	"waitQueueKey": waitQueueKey,
	"waitChannel":  waitChannel,
	"yieldKey":     yieldKey,
	"queueKey":     queueKey,
	"timeoutsKey":  timeoutsKey,
	"placesKey":    placesKey,
	"permitsKey":   permitsKey,
	"latchChannel": func(at key) key { return latchChannels(at)[0] },
	"latchClusterChannel": func(at key) key {
		channels := latchChannels(at)
		return channels[len(channels)-1]
	},
	"readWriteChannel": readWriteChannel,
	"claimKey":         claimKey,
	"semaphoreChannel": semaphoreChannel,
	"requestKey":       func(at key) key { return requestKey(at, aClient+":7") },
	"holdsKey":         func(at key) key { return holdsKey(at, aClient+":7") + ":1" },

	// Keys that scripts and Redisson derive.
	"the lock":              func(at key) key { return at },
	"a client's channel":    func(at key) key { return waitChannel(at) + ":" + aClient },
	"a fair waiter's":       func(at key) key { return channelKey(at) + ":" + aClient + ":7" },
	"a delay queue's":       func(at key) key { return derive("leasewheel_queue_due", at) },
	"redisson_unlock_latch": func(at key) key { return derive("redisson_unlock_latch", at) + ":00ff" },
}

const aClient = "0189d5a3-1111-4222-8333-444455556666"

// notKeys are functions that return a key, but not one of a lock's.
var notKeys = []string{
	"derive",    // the basis of the others
	"holdsTag",  // the beginning of holdsKey
	"clientKey", // of a client's id
}

// Two accepted names have no key and no channel in common, except those that random
// client ids make private to a client.
func TestAcceptedNamesShareNoKeyAndNoChannel(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"a", "b", "{", "}", "{a}", "{b}", ":", "timeout", ":timeout", ":rwlock_timeout", ":1", aClient + ":7",
		"redisson_", "leasewheel_", "lock_token", "lock__channel", "redisson_lock_token:", "redisson_lock__channel:",
		"redisson_countdownlatch__channel__", "leasewheel_request:", "leasewheel_lock_line:", "redisson_unlock_latch:",
	})
	accepted := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "parts"), "")
	}).Filter(func(name string) bool {
		// A name that ends in the id of a client of ours was made for that client.
		return driver.ValidateName(name) == nil && !strings.Contains(name, aClient)
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := accepted.Draw(t, "one"), accepted.Draw(t, "other")
		// Most clashes are between a name and a key derived from another one.
		if rapid.Bool().Draw(t, "derived") {
			derived := string(keyFunctions[rapid.SampledFrom(keyFunctionNames()).Draw(t, "by")](key(one)))
			for _, name := range []string{derived, "{" + one + "}", strings.TrimSuffix(derived, ":"+aClient+":7")} {
				if driver.ValidateName(name) == nil && !strings.Contains(name, aClient) {
					other = name
				}
			}
		}
		if one == other {
			return
		}
		keys := make(map[key]string)
		for what, derived := range keyFunctions {
			keys[derived(key(one))] = what
		}
		for what, derived := range keyFunctions {
			if shared, clash := keys[derived(key(other))]; clash {
				t.Fatalf("%q (%s of %q) is also %s of %q", derived(key(other)), shared, one, what, other)
			}
		}
	})
}

func keyFunctionNames() (names []string) {
	for name := range keyFunctions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Pairs of names that Redisson confuses.
func TestNamesThatShareKeysAreRefused(t *testing.T) {
	for one, other := range map[string]string{
		"orders":         "{orders}",
		"{user:7}:cart":  "{{user:7}:cart}",
		"a":              "{a}:timeout",
		"{a}:b":          "{a}:b:timeout",
		"b":              "redisson_lock_token:{b}",
		"{b}:c":          "redisson_lock__channel:{b}:c",
		"c":              "leasewheel_lock_line:{c}",
		"d":              string(holdsKey("d", aClient+":7")) + ":1",
		"mails":          "leasewheel_queue_due:{mails}",
		"the client's":   string(clientKey(aClient)),
		"a latch's":      string(latchChannels("a latch's")[0]),
		"{tagged}:latch": string(latchChannels("{tagged}:latch")[0]),
	} {
		require.NoError(t, driver.ValidateName(one))
		var refused *lock.NameError
		assert.ErrorAs(t, driver.ValidateName(other), &refused, "%q beside %q", other, one)
	}
}

// The property covers every function that derives a key from a lock's.
func TestEveryKeyFunctionIsChecked(t *testing.T) {
	source := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), ".", source, 0) //nolint:staticcheck // one directory, no build tags
	require.NoError(t, err)
	found := 0
	ast.Inspect(packages["redisstore"], func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		if !ok {
			return true
		}
		name := f.Name.Name
		if f.Recv != nil || !returnsKey(f) || slices.Contains(notKeys, name) {
			return false
		}
		found++
		assert.Contains(t, keyFunctions, name, "a function that derives a key from a lock's")
		return false
	})
	assert.Greater(t, found, 10)
}

// returnsKey reports whether a function returns one key.
func returnsKey(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return false
	}
	result, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && result.Name == "key"
}
