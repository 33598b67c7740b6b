// Package exportertest has the tests that every exporter of metrics passes: what a scripted
// run of locks shows, which sources are exported, and that all may happen at once.
package exportertest
