// Package blueprint answers WHAT must be on a node: it renders the services manifest (services, files,
// environment) as a pure function of the cluster's facts, the payload and the administrator's settings.
//
// The publisher calls Render. Packages that read a cluster fill in Facts. The same input renders the same
// bytes regardless of map order, because the digest of the content names the revision. The package uses no
// client, no network and no clock. Secrets are in Confidential only, never in the manifest.
package blueprint
