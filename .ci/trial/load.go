package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// startLoad keeps the machine busy until the function that it returns is called: with loops
// that compute, each a process of its own, and with a build that starts again whenever it
// ends. They compute at the priority of the tests.
func startLoad(ctx context.Context, loops int, folder string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	for range loops * runtime.NumCPU() {
		loop := exec.CommandContext(ctx, self, "spin")
		input, err := loop.StdinPipe()
		if err == nil {
			err = loop.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		running.Go(func() { _ = loop.Wait(); _ = input.Close() }) // it was killed
	}
	running.Go(func() {
		for ctx.Err() == nil {
			build := exec.CommandContext(ctx, "go", "build", "-a", "-o", filepath.Join(folder, "load"), "net/http")
			build.Env = append(os.Environ(), "GOCACHE="+filepath.Join(folder, "cache"))
			alone(build)
			_ = build.Run() // it was killed
		}
	})
	return stop, nil
}

// spin computes until its parent has ended, which closes stdin.
func spin() {
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end of the input is the signal
		os.Exit(0)
	}()
	for { //nolint:staticcheck // the load is the purpose
	}
}
