// Package docs answers what the documents say, for programs that go by them. The acceptance list is run
// row by row from its page; nothing else reads documents.
package docs

import _ "embed"

// Acceptance is the page with the acceptance list.
//
//go:embed acceptance.md
var Acceptance string
