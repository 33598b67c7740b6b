package connect

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The environment variables of a fleet's settings, for which no flag is given.
const (
	PrefixVariable = "LEASEWHEEL_PREFIX"
	PubSubVariable = "LEASEWHEEL_PUBSUB"
)

// StoreFlags are how locks are stored: they must be those of the clients that share the
// locks.
type StoreFlags struct {
	format formatFlag
	prefix string
	pubSub string
	flags  *pflag.FlagSet
}

// Register registers the flags.
func (s *StoreFlags) Register(flags *pflag.FlagSet) {
	flags.Var(&s.format, "format", "format of locks: redisson, or plain as of redsync and redislock")
	flags.StringVar(&s.prefix, "prefix", "", "`text` before the name of every lock on the server, as of a NameMapper (default: $"+PrefixVariable+")")
	share(flags, "format", "prefix")
	s.RegisterPubSub(flags)
}

// RegisterPubSub registers only the flag that other structures than locks have, too.
func (s *StoreFlags) RegisterPubSub(flags *pflag.FlagSet) {
	s.flags = flags
	flags.StringVar(&s.pubSub, "pubsub", "", "`mode` of the releases' messages in a cluster: auto, on, off or both (default: $"+PubSubVariable+", or auto)")
	share(flags, "pubsub")
}

// Config returns the configuration of the flags, and of the environment for the others.
func (s *StoreFlags) Config() (redisstore.Config, error) {
	c := redisstore.Config{Format: redisstore.Format(s.format), PlainTokens: true, Prefix: s.prefix}
	if !s.flags.Changed("prefix") {
		c.Prefix = os.Getenv(PrefixVariable)
	}
	mode, from := s.pubSub, "--pubsub"
	if !s.flags.Changed("pubsub") {
		mode, from = os.Getenv(PubSubVariable), PubSubVariable
		if mode == "" {
			return c, nil
		}
	}
	var err error
	if c.PubSub, err = redisstore.ParsePubSub(mode); err != nil {
		return c, fmt.Errorf("%s %q: accepted are auto, on, off and both", from, mode)
	}
	return c, nil
}

// ValidateNames checks that names are valid, and that the prefix makes valid keys of them.
func (s *StoreFlags) ValidateNames(names ...string) error {
	c, err := s.Config()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := driver.ValidateName(name); err != nil {
			return err
		}
		if err := driver.ValidateName(c.Prefix + name); err != nil {
			return fmt.Errorf("with the prefix %s: %w", output.Quoted(c.Prefix), err)
		}
	}
	return nil
}

// formatFlag is the format of locks on the server, and so which clients share them.
type formatFlag redisstore.Format

func (f *formatFlag) Set(text string) error {
	format, err := redisstore.ParseFormat(text)
	*f = formatFlag(format)
	return err
}

func (f *formatFlag) String() string { return redisstore.Format(*f).String() }

func (f *formatFlag) Type() string { return "format" }
