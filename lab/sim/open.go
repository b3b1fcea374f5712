package sim

// OpenFiles counts the handles of files that programs and remote clients have open.
func (m *Machine) OpenFiles() (count int) {
	m.volume.mu.RLock()
	defer m.volume.mu.RUnlock()
	return m.volume.root.handles()
}

// handles of it and everything below it.
func (n *node) handles() (count int) {
	count = n.readers + n.writers
	for _, child := range n.children {
		count += child.handles()
	}
	return count
}
