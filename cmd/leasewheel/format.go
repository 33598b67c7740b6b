package main

import (
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// formatFlag is the format of locks on the server, and so which clients share them.
type formatFlag redisstore.Format

func (f *formatFlag) register(flags *pflag.FlagSet) {
	flags.Var(f, "format", "format of locks: redisson, or plain as of redsync and redislock")
}

func (f *formatFlag) Set(text string) error {
	format, err := redisstore.ParseFormat(text)
	*f = formatFlag(format)
	return err
}

func (f *formatFlag) String() string { return redisstore.Format(*f).String() }

func (f *formatFlag) Type() string { return "format" }
