// Package instance is the folder of the five journeys that a host may be on: join, upgrade, reboot,
// remove and health, a package each. What they share is in journey; the SSH key and kubelets' first
// tokens are in credential. It holds only their tests, since a host is taken through several of them
// by the same parts.
//
//	join:    connect → preflight → prepare → deliver → bootstrap → adopt → hand over → confirm
//	upgrade: stage → take a place → (drain) → switch → verify, or go back
//	reboot:  take a place → drain → restart → verify
//	remove:  cordon → connect → drain → clean → forget
package instance
