// Package house holds the rules of this repository as tests: who may import whom, one comment for
// each package, documents that name only what exists. It has no code of its own.
package house
