// Package etcdstore keeps locks on etcd.
package etcdstore

import _ "go.etcd.io/etcd/client/v3"
