package delayqueue

import "strings"

// key returns a key of the queue called name. As for locks it is "prefix:{name}", or
// "prefix:name" if the name has a hash tag.
func key(what, name string) string {
	if strings.Contains(name, "{") {
		return "leasewheel_queue_" + what + ":" + name
	}
	return "leasewheel_queue_" + what + ":{" + name + "}"
}

// keysOf returns the keys that all scripts of a queue get.
func keysOf(name string) []string {
	return []string{
		key("due", name), key("leased", name), key("dead", name),
		key("payload", name), key("record", name), key("token", name), key("channel", name),
	}
}
