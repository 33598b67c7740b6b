package lock

func QueuesOf(l *Locker) int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.queues) }
