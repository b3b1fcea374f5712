// Command bump shows newer versions of pinned modules and the effects of an update. With -write, it updates them. It
// reads every go.mod of the repository, because each go.mod pins other modules: for the operator, programs of nodes,
// the lab or tools.
package main
