//go:build !(real && unix)

package idempotency_test

func serveAsProcess() {}
