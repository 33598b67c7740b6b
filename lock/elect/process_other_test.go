//go:build !unix

package elect_test

func standAsProcess() {}
