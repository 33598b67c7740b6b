// Package lua has the scripts that run on the server, a file for each and for what several
// share.
//
// A line "-- include: name.lua" stands for the text of that file, at its first place in a
// script. What is made by a file is visible below that line. Redis makes a script's functions
// in each run, so the frequent scripts include them where their first use is.
//
// A file uses names of its own and of the files that it includes, and no others.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// MaxNumber is the largest number that is accepted from a server: up to it, Lua is exact.
const MaxNumber = 1<<53 - 1

// Text is a script as a server gets it.
type Text struct {
	Source string
	SHA    string // the name under which a server caches it
	// Timely is set if the script includes deadline.lua. It takes the deadline of its request
	// as its last arguments, and changes nothing after it.
	Timely bool
}

// File returns a function that returns the script in a file. It is put together once.
func File(name string) func() *Text {
	return sync.OnceValue(func() *Text {
		included := make(map[string]bool)
		return newText(expand(files, name, included), included)
	})
}

// Timely returns a function that returns the script in a file of dir. It includes deadline.lua,
// and sees the functions of clock.lua and number.lua.
func Timely(dir fs.FS, name string) func() *Text {
	return sync.OnceValue(func() *Text {
		included := make(map[string]bool)
		source := expand(files, "deadline.lua", included) + expand(files, "number.lua", included)
		return newText(source+expand(dir, name, included), included)
	})
}

func newText(source string, included map[string]bool) *Text {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	return &Text{Source: source, SHA: hex.EncodeToString(sum[:]), Timely: included["deadline.lua"]}
}

// Commands returns the commands that the script calls outside clusters, as rules of Redis' ACL
// name them.
func (t *Text) Commands() (commands []string) {
	for _, call := range strings.Split(t.Source, "call('")[1:] {
		switch command, _, _ := strings.Cut(call, "'"); command {
		case "spublish":
		case "pubsub":
			commands = append(commands, "pubsub|numsub")
		default:
			commands = append(commands, command)
		}
	}
	return commands
}

// expand returns the text of a file, unless it is included already. It searches without a
// regular expression: each start of the command reads all scripts, and that took 60 ms with the
// race detector.
func expand(dir fs.FS, name string, included map[string]bool) string {
	if included[name] {
		return ""
	}
	included[name] = true
	text, err := fs.ReadFile(dir, name)
	if err != nil {
		panic(err) // a line names a file that does not exist
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if file, ok := strings.CutPrefix(line, "-- include: "); ok {
			line = expand(dir, strings.TrimSuffix(file, "\n"), included) + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
