package lua

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// given are the names that a server gives a script.
var given = []string{
	"ARGV", "KEYS", "error", "ipairs", "math", "pcall", "redis", "string", "table", "tonumber", "type", "unpack",
}

// A file uses names of its own and of the files that it includes: any other one is a global.
func TestFilesIncludeWhatTheyUse(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		name := e.Name()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunk, err := parse.Parse(strings.NewReader(expand(files, name, map[string]bool{})), name)
			require.NoError(t, err)
			proto, err := lua.Compile(chunk, name)
			require.NoError(t, err)
			names := make(map[string]bool)
			globals(proto, names)
			assert.Subset(t, given, slices.Sorted(maps.Keys(names)))
		})
	}
}

// A number that is accepted is exact, and so is the next one: a loop up to it ends. The server
// accepts it, too.
func TestIntegersAreExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]lua.LValue{
		"0": lua.LNumber(0), "-1": lua.LNumber(-1), "9007199254740991": lua.LNumber(MaxNumber),
		"": lua.LNil, "-": lua.LNil, "00": lua.LNil, "07": lua.LNil, "-0": lua.LNil, "-07": lua.LNil,
		"9007199254740992": lua.LNil, "9007199254740993": lua.LNil, "9999999999999999": lua.LNil,
	} {
		state := lua.NewState()
		require.NoError(t, state.DoString(expand(files, "number.lua", map[string]bool{})+"return integer('"+text+"')"))
		assert.Equal(t, want, state.Get(-1), text)
		state.Close()
	}
}

// globals adds the names of globals that a function uses or sets.
func globals(proto *lua.FunctionProto, names map[string]bool) {
	const opShift, constantMask = 26, 1<<18 - 1 // of an instruction of gopher-lua
	for _, instruction := range proto.Code {
		switch int(instruction >> opShift) {
		case lua.OP_GETGLOBAL, lua.OP_SETGLOBAL:
			names[proto.Constants[instruction&constantMask].String()] = true
		}
	}
	for _, inner := range proto.FunctionPrototypes {
		globals(inner, names)
	}
}
