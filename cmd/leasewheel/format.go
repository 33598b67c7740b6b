package main

import (
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// formatFlag is how locks are kept on the server, so with whom they are shared.
type formatFlag redisstore.Format

func (f *formatFlag) register(flags *pflag.FlagSet) {
	flags.Var(f, "format", "how locks are kept: redisson, or plain as redsync and redislock have them")
}

func (f *formatFlag) Set(text string) error {
	format, err := redisstore.ParseFormat(text)
	*f = formatFlag(format)
	return err
}

func (f *formatFlag) String() string { return redisstore.Format(*f).String() }

func (f *formatFlag) Type() string { return "format" }
