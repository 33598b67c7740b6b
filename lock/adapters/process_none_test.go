//go:build !(real && unix)

package adapters_test

func migrateAsProcess() {}
