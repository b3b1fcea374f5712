// Package lifecycle answers WHEN: it is a host's way in and out as lists of named phases.
//
//	way in:   connect → preflight → prepare → deliver → bootstrap → adopt → hand over → confirm → (ready)
//	way out:  cordon → connect → drain → clean → forget
//
// Each phase looks first, does one bounded thing, and answers with an Outcome: done, wait, or
// failed with a reason. No phase sleeps, and every one of them may be killed and walked again from
// the start. What must outlive the operator is in the instance's status; a Visit holds only what
// can be had again by asking the host.
//
// The instance controller walks the phases and saves the status. This package decides no budget and
// approves no certificate.
package lifecycle
