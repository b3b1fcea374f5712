package payloadserver

import "sync"

// perNode is the maximum number of requests of one node that are served or wait at the same time. A daemon sends its
// requests one after the other.
const perNode = 2

// shares counts the current requests of each node.
type shares struct {
	mu    sync.Mutex
	nodes map[string]int
}

// take counts a new request of a node. If the node already has the maximum number of requests, take returns false. The
// caller calls leave when the request has ended.
func (s *shares) take(node string, most int) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[node] >= most {
		return nil, false
	}
	s.nodes[node]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.nodes[node]--; s.nodes[node] == 0 {
			delete(s.nodes, node)
		}
	}, true
}
