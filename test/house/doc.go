// Package house tests the rules of this repository: allowed imports, one comment for each package, and documents
// that only name existing things. It contains only tests.
package house
