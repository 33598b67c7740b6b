//go:build !(real && unix)

package elect_test

func standAsProcess() {}
