// Package release tests a release. It pushes a release to a registry of the lab with the command of
// .github/workflows/release.yml, under the release's real names, and installs it on a real control plane with the
// commands of the README. `make test` runs it with a small release, `make test-release` with the output of
// `make release`. It connects to no real registry.
package release
