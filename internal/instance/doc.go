// Package instance contains the packages for the journeys of a host: join, disrupt (upgrade and reboot), remove and
// health. Package journey contains their common parts. Package instance itself contains only their tests, because a
// test may take a host through several journeys.
//
//	join:    connect → preflight → prepare → deliver → bootstrap → adopt → hand over → confirm
//	upgrade: stage → take a slot → (drain) → switch → verify, or roll back
//	reboot:  take a slot → drain → restart → verify
//	remove:  cordon → connect → drain → clean → forget
package instance
