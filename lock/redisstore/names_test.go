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
)

// keyFunctions are the functions that derive keys and channels from a lock's name, each
// with a client and an owner if it takes one.
var keyFunctions = map[string]func(name string) string{
	"channelKey":   channelKey,
	"tokenKey":     tokenKey,
	"waitQueueKey": waitQueueKey,
	"waitChannel":  waitChannel,
	"yieldKey":     yieldKey,
	"queueKey":     queueKey,
	"timeoutsKey":  timeoutsKey,
	"placesKey":    placesKey,
	"permitsKey":   permitsKey,
	"latchChannel": latchChannel,
	"latchClusterChannel": func(name string) string {
		if tagged(name) {
			return latchClusterChannel(name)
		}
		return latchChannel(name) // it is not used for others
	},
	"readWriteChannel": readWriteChannel,
	"claimKey":         claimKey,
	"semaphoreChannel": semaphoreChannel,
	"requestKey":       func(name string) string { return requestKey(name, aClient+":7") },
	"holdsKey":         func(name string) string { return holdsKey(name, aClient+":7") + ":1" },

	// Keys that scripts and Redisson derive.
	"the lock":              func(name string) string { return name },
	"a client's channel":    func(name string) string { return waitChannel(name) + ":" + aClient },
	"a fair waiter's":       func(name string) string { return channelKey(name) + ":" + aClient + ":7" },
	"a delay queue's":       func(name string) string { return derive("leasewheel_queue_due", name) },
	"redisson_unlock_latch": func(name string) string { return derive("redisson_unlock_latch", name) + ":00ff" },
}

const aClient = "0189d5a3-1111-4222-8333-444455556666"

// notKeys are functions of a name that return no key.
var notKeys = []string{
	"derive",   // the basis of the others
	"holdsTag", // the beginning of holdsKey
	"hashTag",
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
		return lock.ValidateName(name) == nil && !strings.Contains(name, aClient)
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := accepted.Draw(t, "one"), accepted.Draw(t, "other")
		// Most clashes are between a name and a key derived from another one.
		if rapid.Bool().Draw(t, "derived") {
			key := keyFunctions[rapid.SampledFrom(keyFunctionNames()).Draw(t, "by")](one)
			for _, name := range []string{key, "{" + one + "}", strings.TrimSuffix(key, ":"+aClient+":7")} {
				if lock.ValidateName(name) == nil && !strings.Contains(name, aClient) {
					other = name
				}
			}
		}
		if one == other {
			return
		}
		keys := make(map[string]string)
		for what, key := range keyFunctions {
			keys[key(one)] = what
		}
		for what, key := range keyFunctions {
			if shared, clash := keys[key(other)]; clash {
				t.Fatalf("%q (%s of %q) is also %s of %q", key(other), shared, one, what, other)
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
		"d":              holdsKey("d", aClient+":7") + ":1",
		"mails":          "leasewheel_queue_due:{mails}",
		"the client's":   clientKey(aClient),
		"a latch's":      latchChannel("a latch's"),
		"{tagged}:latch": latchChannel("{tagged}:latch"),
	} {
		require.NoError(t, lock.ValidateName(one))
		var refused *lock.NameError
		assert.ErrorAs(t, lock.ValidateName(other), &refused, "%q beside %q", other, one)
	}
}

// The property covers every function that derives a key from a name.
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
		if f.Recv != nil || !returnsText(f) || !strings.HasSuffix(name, "Key") && !strings.HasSuffix(name, "Channel") && name != "holdsTag" {
			return false
		}
		if slices.Contains(notKeys, name) || name == "clientKey" { // of a client's id, not of a name
			return false
		}
		found++
		assert.Contains(t, keyFunctions, name, "a function that derives a key from a lock's name")
		return false
	})
	assert.Greater(t, found, 10)
}

// returnsText reports whether a function returns one string.
func returnsText(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return false
	}
	result, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && result.Name == "string"
}
