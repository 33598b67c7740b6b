// Package pgstore keeps locks on PostgreSQL.
package pgstore
