package cloud

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// NodeName returns the name of the Node of a host. On AWS and Google Cloud, the name comes from the metadata service,
// on other platforms from the host name.
func NodeName(platform configv1.PlatformType, hostname string, address netip.Addr) string {
	switch platform {
	case configv1.AWSPlatformType:
		return "ip-" + strings.ReplaceAll(address.String(), ".", "-") + ".ec2.internal"
	case configv1.GCPPlatformType:
		return strings.ToLower(hostname) + ".c.lab.internal"
	}
	return strings.ToLower(hostname)
}

// Metadata returns the metadata service of the platform for a host, or nil if the platform has no relevant service.
// routed means that the host needs a dedicated route to the service.
func Metadata(platform configv1.PlatformType, nodeName, providerID string) (service http.Handler, routed bool) {
	switch platform {
	case configv1.AWSPlatformType:
		return amazonMetadata(nodeName), true
	case configv1.AzurePlatformType:
		return azureMetadata(providerID), false
	case configv1.GCPPlatformType:
		return googleMetadata(nodeName), false
	}
	return nil, false
}

// sessionToken is the token that EC2's metadata service issues in the lab.
const sessionToken = "bGFiLXRva2Vu"

// amazonMetadata simulates version 2 of EC2's metadata service, which requires a token.
func amazonMetadata(nodeName string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		ttl := r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds")
		if ttl == "" || r.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-aws-ec2-metadata-token-ttl-seconds", ttl)
		say(w, sessionToken)
	})
	mux.HandleFunc("GET /latest/meta-data/local-hostname", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token") != sessionToken {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		say(w, nodeName)
	})
	return mux
}

// googleMetadata answers only requests with the required header.
func googleMetadata(nodeName string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /computeMetadata/v1/instance/hostname", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		say(w, nodeName)
	})
	return mux
}

// Azure's metadata service reports these values for each instance.
const (
	AzureRegion = "eastus"
	AzureZone   = "1"
	azureSize   = "Standard_D4s_v3"
)

// azureMetadata serves the data that Azure's node manager reads.
func azureMetadata(providerID string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metadata/instance", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.Header.Get("X-Forwarded-For") != "" ||
			r.URL.Query().Get("api-version") == "" {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"compute": map[string]string{
			"resourceId": strings.TrimPrefix(providerID, "azure://"), "location": AzureRegion, "zone": AzureZone,
			"vmSize": azureSize}})
	})
	return mux
}

func say(w io.Writer, text string) { _, _ = fmt.Fprint(w, text) }
