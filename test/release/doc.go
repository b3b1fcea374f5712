// Package release holds the tests of a release: what .github/workflows/release.yml pushes is pushed to a registry of the
// lab, under the names that it will have, and the README's commands install it on a real control plane. The commands are
// those of the workflow, of the README and of docs/install.md. `make test` tests a small release, and `make test-release`
// the one that `make release` has made. Nothing leaves this machine.
package release
