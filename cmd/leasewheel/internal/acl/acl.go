// Package acl is leasewheel acl: it prints the least rights that a Redis user needs.
package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

const long = `Acl prints the least rights that a Redis user needs for the chosen uses, as a command
for redis-cli. It connects to no server. Without a use it prints those of mutexes.

PATTERN is that of the names of the locks and queues, as Redis matches keys: "*" stands
for any text, "?" for any one character, "[a-z]" for one of a range, and "\" makes the
next character literal. --prefix comes before it. Names with braces, as {user:7}:cart,
need a pattern with these braces, or "*". Each rule names the full prefix of a key; a
pattern that begins with "*" or "?", or with a hash tag before "*", also matches keys of
other names.

The line replaces the user's earlier rights and leaves its passwords: set one with
--password-file, of which only the SHA-256 is printed, or by ACL SETUSER yourself. Save
the user with ACL SAVE or CONFIG REWRITE, and set it on every server: on each node of a
cluster, on replicas, on each server of a quorum.

Redis has no rights to names: with --inspect, a user sees the names of all keys.

Exit codes:
  0   the rights are printed
  64  the arguments are invalid, or the password cannot be read`

const example = `  leasewheel acl 'orders:*' | redis-cli
  leasewheel acl --user shop --password-file /run/secrets/shop --fair --inspect 'orders:*' | redis-cli
  leasewheel acl --cluster --read-write --queue --prefix shop: '*'
  leasewheel acl --sentinel | redis-cli -p 26379`

// command is one execution of `leasewheel acl`.
type command struct {
	user     string
	password string // the file
	prefix   string
	aclFile  bool
	json     bool
	wanted   map[string]*bool
}

// NewCommand makes leasewheel acl.
func NewCommand() *cobra.Command {
	a := &command{wanted: make(map[string]*bool)}
	cmd := &cobra.Command{
		Use:     "acl [flags] [PATTERN]",
		Short:   "Print the least rights that a Redis user needs",
		Long:    long,
		Example: example,
		RunE:    a.run,

		DisableFlagsInUseLine: true,
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	flags := cmd.Flags()
	flags.SortFlags = false
	for _, u := range Uses("*") {
		a.wanted[u.Flag] = flags.Bool(u.Flag, false, u.Name)
	}
	flags.StringVar(&a.user, "user", "leasewheel", "the `name` of the user")
	flags.StringVar(&a.password, "password-file", "", "set the password in this `file`, besides others that the user has")
	flags.StringVar(&a.prefix, "prefix", "", "`text` before the name of every lock on the server (default: $"+connect.PrefixVariable+")")
	flags.BoolVar(&a.aclFile, "acl-file", false, "print a line for the server's ACL file instead of a command")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

func (a *command) run(cmd *cobra.Command, args []string) error {
	pattern, err := connect.Pattern(cmd, args)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("prefix") {
		a.prefix = os.Getenv(connect.PrefixVariable)
	}
	pattern = connect.GlobLiteral(a.prefix) + pattern
	uses, err := a.uses(pattern)
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	if err := validateWord("--user", a.user); err != nil {
		return exit.UsageError(cmd, err)
	}
	if err := validateWord("PATTERN, with its prefix,", pattern); err != nil {
		return exit.UsageError(cmd, err)
	}
	// Redis accepts these: an open class or escape takes in the brace of a key beside the lock, which
	// is then that of another lock.
	if _, err := path.Match(pattern, ""); err != nil {
		return exit.UsageError(cmd, fmt.Errorf(`PATTERN %s: malformed; a "[" needs its "]", and a "\" at the end has no meaning`, output.Quoted(pattern)))
	}
	rules := []string{"on"}
	if a.password != "" {
		password, err := connect.PasswordFromFile("--password-file", a.password)
		if err != nil {
			return exit.UsageError(cmd, err)
		}
		sum := sha256.Sum256([]byte(password))
		rules = append(rules, "#"+hex.EncodeToString(sum[:]))
	}
	if err := a.print(cmd, append(rules, RulesOf(uses)...)); err != nil {
		return exit.Errorf(exit.Internal, "writing the rights: %w", err)
	}
	return nil
}

// uses returns the uses of the flags.
func (a *command) uses(pattern string) ([]Use, error) {
	uses := UsesOf(pattern, func(flag string) bool { return *a.wanted[flag] })
	sentinel := slices.ContainsFunc(uses, func(u Use) bool { return u.Flag == "sentinel" })
	if sentinel && len(uses) > 1 {
		return nil, errors.New("--sentinel is the user of the sentinels, and excludes the other uses, which are those of their servers")
	}
	return uses, nil
}

// Report is the user in JSON.
type Report struct {
	User  string   `json:"user"`
	Rules []string `json:"rules"`
}

func (a *command) print(cmd *cobra.Command, rules []string) error {
	if a.json {
		return output.WriteEscaped(cmd.OutOrStdout(), Report{a.user, rules}, "  ")
	}
	verb := "ACL SETUSER"
	if a.aclFile {
		verb = "user"
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), verb, a.user, strings.Join(rules, " "))
	return err
}

// validateWord checks that neither redis-cli nor Redis's configuration would split, unquote or
// refuse a word.
func validateWord(what, word string) error {
	refused := func(r rune) bool {
		return !unicode.IsPrint(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'#", r)
	}
	if word == "" || !utf8.ValidString(word) || strings.ContainsFunc(word, refused) {
		return fmt.Errorf("%s %s: ACL rules accept no white space, and this command no quotes and no \"#\"; \"?\" matches any of them in a pattern", what, output.Quoted(word))
	}
	return nil
}
