package payloadserver

import "sync"

// perNode limits a node's requests that are served or waiting. A daemon sends one request after the other.
const perNode = 2

type shares struct {
	mu    sync.Mutex
	nodes map[string]int
}

// take counts a new request of a node. If the node has `most` requests, `ok` is false. Call `leave` after the request.
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
