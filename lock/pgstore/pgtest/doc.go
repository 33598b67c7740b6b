// Package pgtest starts PostgreSQL servers for tests: on a unix socket in a folder of their own,
// with fsync, and ended for certain with the test.
package pgtest
