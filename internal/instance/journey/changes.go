package journey

import "sync"

// change is what it takes to come from one revision to another; see Update.
type change struct{ payload, restarts, drains bool }

// mostChanges is how many changes are remembered: nodes of a fleet come from few revisions, and go
// to one.
const mostChanges = 64

// changes remembers what it takes to come from one revision to another. Hundreds of nodes go the
// same path, each is looked at many times, and a revision's name stands for its content, so that no
// answer ever changes.
type changes struct {
	mu  sync.Mutex
	all map[[2]string]change
}

// of gives the change between two revisions, by find if it was never asked for. What find does not
// know for good is not remembered.
func (c *changes) of(from, to string, find func() (one change, known, forGood bool)) (one change, known bool) {
	path := [2]string{from, to}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.all[path]; ok {
		return one, true
	}
	one, known, forGood := find()
	if !forGood {
		return one, known
	}
	if c.all == nil || len(c.all) >= mostChanges {
		c.all = map[[2]string]change{}
	}
	c.all[path] = one
	return one, true
}
