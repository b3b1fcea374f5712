// Command image builds the container images of the project without a container engine: the images of the operator,
// the payload and wmco-e2e, for linux/amd64 and linux/arm64. It is a build tool for people and CI, and is not
// shipped.
//
// An image is written as an OCI layout, and pushed from there. The same source always gives the same digest. Each
// image has a CycloneDX list of parts, and a signature if a key is given. Both are attached as referrers, so that
// tools that mirror images copy them as well:
//
//	payload directory ─┐
//	go build ──────────┼─▶ layers ─▶ image ─▶ OCI layout ─▶ registry
//	                   └─▶ build information ─▶ list of parts ─┴─ referrers of the image
package main
