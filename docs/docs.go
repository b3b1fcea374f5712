// Package docs answers what the documents say, for programs that go by them. The acceptance list
// and the first run are tried row by row from their pages; nothing else reads documents.
package docs

import _ "embed"

// Acceptance is the page with the acceptance list.
//
//go:embed acceptance.md
var Acceptance string

// FirstRun is the page of the first run on real Windows.
//
//go:embed first-run.md
var FirstRun string
