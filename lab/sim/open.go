package sim

// OpenFiles counts the open file handles of programs and remote clients.
func (m *Machine) OpenFiles() (count int) {
	m.volume.mu.RLock()
	defer m.volume.mu.RUnlock()
	return m.volume.root.handles()
}

// handles counts the open handles of the node and everything below it.
func (n *node) handles() (count int) {
	count = n.readers + n.writers
	for _, child := range n.children {
		count += child.handles()
	}
	return count
}
