// Package blueprint decides WHAT must be on a node: it renders the services manifest (services, files, environment) as
// a pure function of the cluster's facts, the payload and the administrator's settings.
//
// The publisher calls Render. Packages that read a cluster fill in Facts. Render always returns the same bytes for the
// same input, regardless of map order, because a revision's name contains the digest of its content. The package uses
// no client, no network and no clock. Secrets are only in Desired.Confidential, never in the manifest.
package blueprint
