package sim

// OpenFiles returns how many files are open in programs and by remote clients.
func (m *Machine) OpenFiles() (count int) {
	m.volume.mu.RLock()
	defer m.volume.mu.RUnlock()
	return m.volume.root.handles()
}

// handles returns how many handles of the node and of everything below it are open.
func (n *node) handles() (count int) {
	count = n.readers + n.writers
	for _, child := range n.children {
		count += child.handles()
	}
	return count
}
