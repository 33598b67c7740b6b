package wheel

import (
	"container/heap"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// overdue is a heap, by tick, of periodic tasks that catch up: their next run was due as
// soon as the last one had ended. They are in no list. The worker adds and takes them while
// it runs what is due, and looks into no inbox meanwhile. Sorting what is due again for each
// run that was missed would take time with the number of timeouts.
type overdue []overdueNode

type overdueNode struct {
	tick timeout.Tick
	node *bucket.Node
}

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (o overdue) Len() int           { return len(o) }
func (o overdue) Less(i, j int) bool { return o[i].tick < o[j].tick }
func (o overdue) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *overdue) Push(x any)        { *o = append(*o, x.(overdueNode)) }

func (o *overdue) Pop() any {
	last := len(*o) - 1
	n := (*o)[last]
	(*o)[last] = overdueNode{}
	*o = (*o)[:last]
	return n
}

// add puts a pending node in at its tick.
func (o *overdue) add(n *bucket.Node, tick timeout.Tick) { heap.Push(o, overdueNode{tick, n}) }

// take takes out the node of the first tick.
func (o *overdue) take() *bucket.Node { return heap.Pop(o).(overdueNode).node }
