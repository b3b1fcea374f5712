// Package docs embeds the pages that programs read: the acceptance list and the first run, which tests try row by row.
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
