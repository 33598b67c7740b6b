//go:build !(real && unix)

package delayqueue_test

import "errors"

// chaosWorker is the environment variable with the server's URL.
const chaosWorker = "LEASEWHEEL_QUEUE_WORKER"

// workInChaos is a worker process of a test that stops and kills processes.
func workInChaos(string) error { return errors.New("built without that test") }
