// Package instance is the folder of the five journeys of a host, one package each: join, upgrade, reboot, remove
// and health. Package journey holds their common parts, and package credential the SSH key and kubelets' first
// tokens. This package contains only their tests, because the same parts take a host through several journeys.
//
//	join:    connect → preflight → prepare → deliver → bootstrap → adopt → hand over → confirm
//	upgrade: stage → take a slot → (drain) → switch → verify, or roll back
//	reboot:  take a slot → drain → restart → verify
//	remove:  cordon → connect → drain → clean → forget
package instance
