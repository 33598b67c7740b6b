package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// besideRun is a run of one command in several folders, of which some run beside each other: what
// waits in one leaves the processors to the others.
type besideRun struct {
	lanes   int // how many run at a time
	folders []string
	command []string
	out     io.Writer
}

// newBeside reads the folders and, behind "--", the command.
func newBeside(lanes int, args []string, out io.Writer) (*besideRun, error) {
	i := slices.Index(args, "--")
	if lanes < 1 || i < 1 || i == len(args)-1 {
		return nil, errors.New("usage: trial beside [-lanes 3] folders -- command")
	}
	return &besideRun{lanes, args[:i], args[i+1:], out}, nil
}

// play runs the command in all folders, also after one has failed. The output of each is printed
// when it has ended: those of several do not mix.
func (b *besideRun) play(ctx context.Context) error {
	var mu sync.Mutex // guards out and failures
	var failures []string
	var running sync.WaitGroup
	free := make(chan struct{}, b.lanes)
	for _, folder := range b.folders {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			begun := time.Now()
			output, err := b.once(ctx, folder)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(b.out, "== %s: %s (%v)\n%s", folder, strings.Join(b.command, " "), time.Since(begun).Round(time.Second), output)
			if err != nil {
				fmt.Fprintf(b.out, "== %s: %v\n", folder, err)
				failures = append(failures, folder)
			}
		})
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(failures) > 0 {
		fmt.Fprintf(b.out, "failed: %s\n", strings.Join(failures, " "))
		return errFailed
	}
	return nil
}

// once runs the command in a folder.
func (b *besideRun) once(ctx context.Context, folder string) ([]byte, error) {
	var output bytes.Buffer
	command := exec.CommandContext(ctx, b.command[0], b.command[1:]...)
	command.Dir, command.Stdout, command.Stderr = folder, &output, &output
	command.WaitDelay = leftLimit
	alone(command)
	err := command.Run()
	return output.Bytes(), err
}
