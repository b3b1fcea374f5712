// Command bump shows which pinned modules have newer versions, what would change with them, and on
// request takes them. It looks at every go.mod of the repository, as each pins what it builds:
// operator, programs of nodes, lab and tools.
package main
